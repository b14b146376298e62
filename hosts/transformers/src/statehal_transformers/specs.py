"""What the layers of a transformers model keep, as statehal specs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from statehal.errors import Unsupported
from statehal.spec import Attention
from statehal_transformers.compat import PreTrainedConfig, get_layer_types_and_kwargs

FIX = "(fix: use transformers' DynamicCache for this model)"


class LayerState(NamedTuple):
    """What decides into which sub-pool a layer goes: layers that agree in all of it share one."""

    window: int | None
    kv_heads: int
    head_dim: int


def attention_specs(config: PreTrainedConfig, dtype: torch.dtype) -> tuple[Attention, ...]:
    """One spec for each kind of attention layer: ``full``, ``swa`` and, where sizes differ, ``full2`` and so on.

    Args:
        config: of the model; of a composite model its text decoder's part is read.
        dtype: of the keys and values, which is the model's own.

    Raises:
        Unsupported: a layer keeps something else than keys and values of each head; names the layer's type.
    """
    decoder = config.get_text_config(decoder=True)
    groups: dict[LayerState, list[int]] = {}
    for layer, state in enumerate(_layer_states(config, decoder)):
        groups.setdefault(state, []).append(layer)
    specs: list[Attention] = []
    for state, layers in groups.items():
        kind = "full" if state.window is None else "swa"
        number = 1 + sum(spec.name.startswith(kind) for spec in specs)
        specs.append(
            Attention(
                kind if number == 1 else f"{kind}{number}",
                layers=tuple(layers),
                kv_heads=state.kv_heads,
                head_dim=state.head_dim,
                dtype=str(dtype),
                window=state.window,
            )
        )
    return tuple(specs)


def _layer_states(config: PreTrainedConfig, decoder: PreTrainedConfig) -> Iterator[LayerState]:
    if config.is_encoder_decoder:
        raise Unsupported(f"{config.model_type!r} is an encoder-decoder: cross_attention is not kept here {FIX}")
    layer_types, layer_kwargs = get_layer_types_and_kwargs(decoder)
    sizes = decoder.per_layer_config
    for layer, (kind, kwargs, own) in enumerate(zip(layer_types, layer_kwargs, sizes, strict=True)):
        if kind == "full_attention" and getattr(own, "kv_lora_rank", None) is not None:
            kind = f"latent_attention (kv_lora_rank {own.kv_lora_rank})"
        if kind not in ("full_attention", "sliding_attention"):
            raise Unsupported(
                f"layer {layer} of {decoder.model_type!r} is of type {kind}: the pooled cache keeps full_attention and "
                f"sliding_attention layers {FIX}"
            )
        yield LayerState(kwargs.get("sliding_window"), *_head_sizes(own))


def _head_sizes(own: Any) -> tuple[int, int]:
    """Heads of K and V, and the width of one."""
    heads = getattr(own, "num_attention_heads", None)
    kv_heads = getattr(own, "num_key_value_heads", None) or heads
    head_dim = getattr(own, "head_dim", None)
    if head_dim is None and heads:
        head_dim = own.hidden_size // heads
    if not isinstance(kv_heads, int) or not isinstance(head_dim, int):
        raise Unsupported(
            f"the config of {own.model_type!r} does not say how many key-value heads a layer has and how wide they "
            f"are: got num_key_value_heads={kv_heads!r}, head_dim={head_dim!r} {FIX}"
        )
    return kv_heads, head_dim
