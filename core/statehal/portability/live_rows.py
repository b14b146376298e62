"""Where rows lie, as integers: derived from a layout, or read off the views of a pool."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statehal.layout import FieldLayout, PoolLayout, view_geometry
from statehal.spec import dtype_name, itemsize

if TYPE_CHECKING:
    from statehal.pool import SubPool


@dataclass(frozen=True)
class RowView:
    """One layer of one field over all pages: ``[pages, *token_shape, *row_shape]``.

    Attributes:
        strides: of each axis, in bytes.
        offset: first byte, from the start of the buffer.
    """

    field: str
    layer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def layout_rows(layout: PoolLayout) -> tuple[RowView, ...]:
    """What a layout says of every stored layer of every field."""
    found = []
    for field, layer in _stored(layout):
        view = view_geometry(field, "page", layer, layout.num_pages)
        size = itemsize(view.dtype)
        strides = tuple(stride * size for stride in view.strides)
        found.append(RowView(field.name, layer, view.dtype, view.shape, strides, view.offset * size))
    return tuple(found)


def live_rows(subpool: "SubPool") -> tuple[RowView, ...]:
    """What the tensors of a sub-pool say: their own shapes, strides and addresses, whatever the layout claims."""
    found = []
    for field, layer in _stored(subpool.layout):
        view = subpool.view(field.name, layer, "page")
        strides = tuple(stride * view.dtype.itemsize for stride in view.stride())
        offset = view.data_ptr() - subpool.buffer.data_ptr()
        found.append(RowView(field.name, layer, dtype_name(view.dtype), tuple(view.shape), strides, offset))
    return tuple(found)


def _stored(layout: PoolLayout) -> Iterator[tuple[FieldLayout, int]]:
    return ((field, group[0]) for field in layout.fields for group in field.layers)
