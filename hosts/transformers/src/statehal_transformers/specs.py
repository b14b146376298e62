"""What the layers of a transformers model keep, as statehal specs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from statehal.errors import Unsupported
from statehal.spec import Attention, ConvRecurrent, Latent, Spec
from statehal_transformers.compat import DynamicCache, PreTrainedConfig, cache_keyword, get_layer_types_and_kwargs

FIX = "(fix: use transformers' DynamicCache for this model)"
ATTENTION = ("full_attention", "sliding_attention")
LINEAR = ("conv", "linear_attention")
HYBRID = "hybrid"


class LayerKind(NamedTuple):
    """What transformers says of a layer: its type, and the window of its attention where it has one."""

    kind: str
    window: int | None


def layer_kinds(config: PreTrainedConfig) -> list[LayerKind]:
    """The type of every layer.

    Args:
        config: of the model; of a composite model its text decoder's part is read.

    Raises:
        Unsupported: a layer keeps something that the pooled cache does not; names the layer's type.
    """
    decoder = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        raise Unsupported(f"{config.model_type!r} is an encoder-decoder: cross_attention is not kept here {FIX}")
    kinds = []
    for layer, (kind, kwargs) in enumerate(zip(*get_layer_types_and_kwargs(decoder), strict=True)):
        if kind not in (*ATTENTION, *LINEAR, HYBRID):
            raise Unsupported(
                f"layer {layer} of {decoder.model_type!r} is of type {kind}: the pooled cache keeps "
                f"{', '.join((*ATTENTION, *LINEAR))} and hybrid layers {FIX}"
            )
        if kwargs.get("number_of_states", 1) != 1:
            raise Unsupported(
                f"layer {layer} of {decoder.model_type!r} keeps {kwargs['number_of_states']} conv states: the pooled "
                f"cache keeps one a layer {FIX}"
            )
        kinds.append(LayerKind(kind, kwargs.get("sliding_window")))
    return kinds


def model_specs(model: Any, draft_tokens: int = 0) -> tuple[Spec, ...]:
    """One spec for each kind of state: ``full``, ``swa``, ``latent``, ``conv``; where sizes differ also ``full2`` etc.

    Not every width stands in a config: the model runs one token with transformers' own cache, and what its layers then
    hold is what they keep.

    Args:
        model: in evaluation; its own dtype and device are those of its state.
        draft_tokens: of a conv window, how many tokens may be rejected after a forward pass.

    Raises:
        Unsupported: as of ``layer_kinds``.
    """
    kinds = layer_kinds(model.config)
    specs: dict[Spec, list[int]] = {}
    for layer, (kind, kept) in enumerate(zip(kinds, _dry_run(model), strict=True)):
        own = model.config.get_text_config(decoder=True).per_layer_config[layer]
        for spec in _layer_specs(layer, kind, kept, own, draft_tokens):
            specs.setdefault(spec, []).append(layer)
    counts: dict[str, int] = {}
    named = []
    for spec, layers in specs.items():
        number = counts[spec.name] = counts.get(spec.name, 0) + 1
        named.append(replace(spec, name=spec.name if number == 1 else f"{spec.name}{number}", layers=tuple(layers)))
    return tuple(named)


def _dry_run(model: Any) -> Iterable[Any]:
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(torch.zeros((1, 1), dtype=torch.long, device=model.device), **{cache_keyword(model): cache})
    layers: Iterable[Any] = cache.layers
    return layers


def _layer_specs(layer: int, kind: LayerKind, kept: Any, own: Any, draft_tokens: int) -> Iterator[Spec]:
    """The specs of one layer, all as if it were layer 0, so that equal ones are one."""
    if kind.kind in (*LINEAR, HYBRID):
        conv, state = kept.conv_states[0], kept.recurrent_states[0]
        if conv is None:
            raise Unsupported(f"layer {layer} of {own.model_type!r} keeps a recurrent state and no conv state {FIX}")
        yield ConvRecurrent(
            "conv",
            (0,),
            channels=conv.shape[1],
            width=conv.shape[2],
            dtype=str(conv.dtype),
            verify_tokens=1 + draft_tokens if state is None else 1,
            state=None if state is None else tuple(state.shape[1:]),
            state_dtype="float32" if state is None else str(state.dtype),
        )
    if kind.kind in (*ATTENTION, HYBRID):
        (_, heads, _, width), value_width = kept.keys.shape, kept.values.shape[3]
        dtype, window = str(kept.keys.dtype), kind.window
        if heads == 1 and getattr(own, "kv_lora_rank", None) == width and own.qk_rope_head_dim == value_width:
            yield Latent("latent", (0,), kv_lora_rank=width, qk_rope_head_dim=value_width, dtype=dtype, window=window)
        else:
            other = None if value_width == width else value_width
            yield Attention(
                "full" if window is None else "swa",
                (0,),
                kv_heads=heads,
                head_dim=width,
                dtype=dtype,
                v_head_dim=other,
                window=window,
            )
