"""The names of transformers that this package builds on, and what differs between its versions."""

import inspect
from typing import Any

from transformers import GenerationMixin, PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin, get_layer_types_and_kwargs

__all__ = ["Cache", "CacheLayer", "PreTrainedConfig", "cache_keyword", "get_layer_types_and_kwargs"]


class CacheLayer(CacheLayerMixin):
    """``CacheLayerMixin`` with the annotations that a subclass needs."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]


def cache_keyword() -> str:
    """What ``generate`` calls its cache: ``cache`` from transformers 5.24 on, before that ``past_key_values``."""
    parameters = inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    return "cache" if "cache" in parameters else "past_key_values"
