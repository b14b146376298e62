"""Packing fields into one contiguous page."""

from collections.abc import Sequence
from math import lcm

from statehal.errors import LayoutError
from statehal.layout.field import FieldLayout
from statehal.layout.forms import FormKind
from statehal.layout.pool_layout import PoolLayout
from statehal.spec import FieldSpec, itemsize

Block = tuple[FieldSpec, tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
"""A field, its row strides, token shape and strides, and the bytes of one layer in one page."""


def packed(shape: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """Row-major strides of ``shape`` whose last axis steps by ``unit`` bytes."""
    strides = []
    for size in reversed(shape):
        strides.append(unit)
        unit *= size
    return tuple(reversed(strides))


def envelope(blocks: Sequence[Block], forms: tuple[FormKind, ...], align: int) -> PoolLayout:
    """Fields with the same layers interleave layer by layer; the groups follow each other."""
    if align < 1:
        raise LayoutError(f"align={align}: expected at least 1")
    placed: dict[str, tuple[int, int]] = {}
    end = 0
    for layers in dict.fromkeys(field.layers for field, *_ in blocks):
        members = [block for block in blocks if block[0].layers == layers]
        unit = lcm(align, *(itemsize(field.dtype) for field, *_ in members))
        start = cursor = -(-end // unit) * unit
        for field, *_, size in members:
            step = lcm(align, itemsize(field.dtype))
            cursor = -(-cursor // step) * step
            placed[field.name] = (cursor, 0)
            cursor += size
        stride = -(-(cursor - start) // unit) * unit
        for field, *_ in members:
            placed[field.name] = (placed[field.name][0], stride)
        end = cursor + (len(layers) - 1) * stride
    unit = lcm(align, *(itemsize(field.dtype) for field, *_ in blocks))
    page = -(-end // unit) * unit
    fields = tuple(
        FieldLayout(f.name, f.dtype, f.layers, f.row_shape, rows, shape, strides, *placed[f.name], page)
        for f, rows, shape, strides, _ in blocks
    )
    return PoolLayout(fields, tuple((field.name, forms) for field in fields), align=align)
