"""A conv sub-pool as the kernels address it: integers of its layout, found once."""

from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from statehal.errors import Unsupported
from statehal.layout import FieldLayout
from statehal.pool import SubPool
from statehal.spec import REPLAY, ConvRecurrent
from statehal_triton_ops.axes import UNIT, power_of_two, widest
from statehal_triton_ops.kernels.conv_rows import WordRows
from statehal_triton_ops.kernels.conv_windows import Windows

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of windows, inputs and outputs."""

WORD = 4
"""Bytes of the widest word in which rows are copied; neighbouring words move in one access."""


def serves(sub: SubPool) -> bool:
    """Whether the kernels take the windows of a sub-pool of slots as they are stored."""
    conv, spec = sub.layout.conv, sub.spec
    assert isinstance(spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
    assert conv is not None, "a layout of slots says how windows are stored"
    return conv.window_order == "rows_first" and conv.protocol in ("ring", "offset") and spec.dtype in DTYPES


@dataclass(frozen=True)
class ConvViews:
    """What the kernels need of a sub-pool.

    Attributes:
        spec: what a slot keeps.
        ring: whether the protocol is ``ring``; else it is ``offset``.
        windows: of each model layer id.
        dtype: of the windows.
        s_layer: elements between the windows of neighbouring layers.
        strides: of windows, in elements, with the number of channels: vectors must divide them.
        words: the pool's buffer in words.
        recurrent, rings: rows of all layers, as words; ``rings`` are replay rings.
        moved: windows and replay rings, of which a tree's rows are moved.
        whole: the same as one row each.
        recurrent_of, rings_of: of each model layer id, the rows of that layer alone.
        pages: whole slots as bytes, ``[ranges, slots, bytes]`` each.
    """

    spec: ConvRecurrent
    ring: bool
    windows: dict[int, Windows]
    dtype: torch.dtype
    s_layer: int
    strides: tuple[int, ...]
    words: Tensor
    recurrent: tuple[WordRows, ...]
    rings: tuple[WordRows, ...]
    moved: tuple[WordRows, ...]
    whole: tuple[WordRows, ...]
    recurrent_of: dict[int, tuple[WordRows, ...]]
    rings_of: dict[int, tuple[WordRows, ...]]
    pages: tuple[Tensor, ...]

    def vectors(self, fields: tuple[WordRows, ...]) -> tuple[int, ...]:
        """Of each field, how many words lie together in each of its rows: with them 16 bytes at most."""
        word = self.words.itemsize
        start = self.words.data_ptr() // word
        return tuple(
            gcd(UNIT // word, start, one.base, one.s_layer, one.s_slot, one.s_row, one.words) for one in fields
        )


def conv_views(sub: SubPool) -> ConvViews:
    """The views of a sub-pool of slots.

    Raises:
        Unsupported: ``serves`` says no.
    """
    spec, conv = sub.spec, sub.layout.conv
    if not serves(sub):
        raise Unsupported(
            f"conv windows of {sub.name!r} are {sub.layout.conv} of {getattr(spec, 'dtype', None)}: the Triton kernels "
            f"take 'rows_first', protocol 'ring' or 'offset', and {DTYPES} (fix: let the same backend provide layout "
            f"and conv)"
        )
    assert isinstance(spec, ConvRecurrent)
    assert conv is not None
    field = sub.layout.field("conv")
    size = field.itemsize
    s_row, s_slot = field.row_strides[0] // size, field.page_stride // size
    cursor = sub.layout.field("cursor")
    cursors = sub.view("cursor", spec.layers[0], "page")
    s_cursor = cursor.page_stride // cursor.itemsize

    def windows(layer: int) -> Windows:
        ptr = sub.view("conv", layer, "page")
        return Windows(ptr, s_slot, s_row, spec.window_rows, cursors, s_cursor, sub.layout.num_pages)

    fields = [one for one in sub.layout.fields if one.name != "cursor"]
    channel_bytes = spec.channels * field.itemsize
    sizes = [size for one in fields for size in _sizes(one)]
    word = min(widest(sub.buffer.data_ptr(), channel_bytes, *sizes), WORD)
    keeps = {"conv": spec.width - 1, REPLAY: spec.verify_tokens}

    def rows(one: FieldLayout, index: int | None = None, *, whole: bool = False) -> WordRows:
        """All layers of a field, or one; as the rows of a ring, or as one row."""
        ring = one.name in keeps and not whole
        row_bytes = channel_bytes if one.name == "conv" else one.row_bytes // one.row_shape[0]
        return WordRows(
            base=(one.base + (index or 0) * one.layer_stride) // word,
            s_layer=one.layer_stride // word,
            s_slot=one.page_stride // word,
            words=(row_bytes if ring else one.page_extent) // word,
            layers=len(one.layers) if index is None else 1,
            s_row=one.row_strides[0] // word if ring else 0,
            rows=one.row_shape[0] if ring else 1,
            keep=keeps.get(one.name, 0),
        )

    def of_layers(some: list[FieldLayout]) -> dict[int, tuple[WordRows, ...]]:
        return {
            layer: tuple(rows(one, n) for one in some for n, group in enumerate(one.layers) if layer in group)
            for layer in spec.layers
        }

    rings = [one for one in fields if one.name == REPLAY]
    recurrent = [one for one in fields if one.name not in keeps]
    moved = [field, *rings]
    return ConvViews(
        spec=spec,
        ring=conv.protocol == "ring",
        windows={layer: windows(layer) for layer in spec.layers},
        dtype=getattr(torch, spec.dtype),
        s_layer=field.layer_stride // size,
        strides=(s_row, s_slot, spec.channels),
        words=sub.buffer.view({4: torch.int32, 2: torch.int16, 1: torch.uint8}[word]),
        recurrent=tuple(map(rows, recurrent)),
        rings=tuple(map(rows, rings)),
        moved=tuple(map(rows, moved)),
        whole=tuple(rows(one, whole=True) for one in moved),
        recurrent_of=of_layers(recurrent),
        rings_of=of_layers(rings),
        pages=sub.page_views,
    )


def blocks(fields: tuple[WordRows, ...], most: int) -> tuple[int, ...]:
    """Of each field, the words of a tile, a power of two: as many as its rows have, ``most`` at most."""
    return tuple(min(most, power_of_two(one.words)) for one in fields)


def _sizes(field: FieldLayout) -> tuple[int, ...]:
    """Bytes of which words must be a divisor."""
    return field.base, field.layer_stride, field.page_stride, field.row_strides[0], field.page_extent
