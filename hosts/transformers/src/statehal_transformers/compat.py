"""The names of transformers that this package builds on, and what differs between its versions."""

import inspect
from typing import Any

from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    LinearAttentionCacheLayerMixin,
    get_layer_types_and_kwargs,
)

__all__ = [
    "Cache",
    "CacheLayer",
    "DynamicCache",
    "LinearCacheLayer",
    "PreTrainedConfig",
    "cache_keyword",
    "get_layer_types_and_kwargs",
    "takes",
]


class CacheLayer(CacheLayerMixin):
    """``CacheLayerMixin`` with the annotations that a subclass needs."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]


_Linear: Any = LinearAttentionCacheLayerMixin


class LinearCacheLayer(_Linear):  # type: ignore[misc]
    """What transformers asks for conv and recurrent states; without the attributes that hold its own layers' state."""


def cache_keyword(model: Any) -> str:
    """What a model calls its cache: ``cache`` from transformers 5.24 on, before that one of two other names."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "cache_params") if name in parameters), "past_key_values")


def takes(model: Any, name: str) -> bool:
    """Whether a model's ``forward`` has an argument of that name."""
    return name in inspect.signature(model.forward).parameters
