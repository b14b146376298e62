"""Operators of the KV writer's methods; see ``statehal.binding.library.operators``."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from statehal.binding.library.handles import handle

SCHEMAS = {
    "kv_write": """(
        Tensor(a!) buffer, SymInt bound, SymInt layer, Tensor[] ids, Tensor k, Tensor v,
        Tensor? k_scale, Tensor? v_scale, float? k_number, float? v_number
    ) -> ()""",
    "kv_rope_write": """(
        Tensor(a!) buffer, SymInt bound, SymInt layer, Tensor[] ids, Tensor q, Tensor k, Tensor v, Tensor positions,
        Tensor cos_sin, bool interleaved, int[]? rope_sections, Tensor? q_norm, Tensor? k_norm, float eps,
        Tensor(b!) q_out, Tensor(c!)? k_out, Tensor? k_scale, Tensor? v_scale, float? k_number, float? v_number
    ) -> ()""",
    "kv_write_latent": """(
        Tensor(a!) buffer, SymInt bound, SymInt layer, Tensor[] ids, Tensor kv_c, Tensor k_pe, Tensor? norm,
        float eps, Tensor? positions, Tensor? cos_sin, bool interleaved, Tensor? scale, float? number
    ) -> ()""",
    "kv_move": "(Tensor(a!) buffer, SymInt bound, Tensor[] dst, Tensor[] src) -> ()",
}
"""By name. A scale has two arguments, of which one at most is given: a tensor or a number."""


def kv_write(
    buffer: Tensor,
    bound: int,
    layer: int,
    ids: Sequence[Tensor],
    k: Tensor,
    v: Tensor,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    k_number: float | None,
    v_number: float | None,
) -> None:
    """Mutates ``buffer``."""
    one = handle(bound)
    one.call(
        buffer, "write", layer, one.ids(ids), k, v, k_scale=_scale(k_scale, k_number), v_scale=_scale(v_scale, v_number)
    )


def kv_rope_write(
    buffer: Tensor,
    bound: int,
    layer: int,
    ids: Sequence[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    interleaved: bool,
    rope_sections: Sequence[int] | None,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
    q_out: Tensor,
    k_out: Tensor | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    k_number: float | None,
    v_number: float | None,
) -> None:
    """Mutates ``buffer``, ``q_out`` and ``k_out``."""
    one = handle(bound)
    one.call(
        buffer,
        "rope_write",
        layer,
        one.ids(ids),
        q,
        k,
        v,
        positions,
        cos_sin,
        interleaved=interleaved or None,
        rope_sections=None if rope_sections is None else tuple(rope_sections),
        q_norm=q_norm,
        k_norm=k_norm,
        eps=eps,
        q_out=q_out,
        k_out=k_out,
        k_scale=_scale(k_scale, k_number),
        v_scale=_scale(v_scale, v_number),
    )


def kv_write_latent(
    buffer: Tensor,
    bound: int,
    layer: int,
    ids: Sequence[Tensor],
    kv_c: Tensor,
    k_pe: Tensor,
    norm: Tensor | None,
    eps: float,
    positions: Tensor | None,
    cos_sin: Tensor | None,
    interleaved: bool,
    scale: Tensor | None,
    number: float | None,
) -> None:
    """Mutates ``buffer``."""
    one = handle(bound)
    one.call(
        buffer,
        "write_latent",
        layer,
        one.ids(ids),
        kv_c,
        k_pe,
        norm=norm,
        eps=eps,
        positions=positions,
        cos_sin=cos_sin,
        interleaved=interleaved or None,
        scale=_scale(scale, number),
    )


def kv_move(buffer: Tensor, bound: int, dst: Sequence[Tensor], src: Sequence[Tensor]) -> None:
    """Mutates ``buffer``."""
    one = handle(bound)
    one.call(buffer, "move", one.ids(dst), one.ids(src))


def _scale(tensor: Tensor | None, number: float | None) -> Tensor | float | None:
    return number if tensor is None else tensor


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "kv_write": kv_write,
    "kv_rope_write": kv_rope_write,
    "kv_write_latent": kv_write_latent,
    "kv_move": kv_move,
}
