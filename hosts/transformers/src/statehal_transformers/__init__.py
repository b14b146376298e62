"""A transformers cache whose layers keep their state in a statehal pool."""

from statehal_transformers.cache import PooledCache
from statehal_transformers.host import PoolHost
from statehal_transformers.prefix_cache import PrefixCache
from statehal_transformers.prefix_store import PrefixStore
from statehal_transformers.tensor_conv import same_convolution

__all__ = ["PoolHost", "PooledCache", "PrefixCache", "PrefixStore", "same_convolution"]
