"""A transformers cache whose layers keep their state in a statehal pool."""

from statehal_transformers.cache import PooledCache
from statehal_transformers.host import PoolHost
from statehal_transformers.tensor_conv import same_convolution

__all__ = ["PoolHost", "PooledCache", "same_convolution"]
