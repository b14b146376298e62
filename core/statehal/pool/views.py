"""Strided views of a pool's buffer, built from a layout's integers."""

import torch

from statehal.layout import FormKind, PoolLayout, view_geometry
from statehal.spec import nan_byte


def field_view(buffer: torch.Tensor, layout: PoolLayout, field: str, kind: FormKind, layer: int) -> torch.Tensor:
    """The view that ids of one form index for one layer of one field; aliases ``buffer`` (uint8 ``[bytes]``)."""
    geometry = view_geometry(layout.field(field), kind, layer, layout.num_pages)
    typed = buffer.view(getattr(torch, geometry.dtype))
    return typed.as_strided(geometry.shape, geometry.strides, geometry.offset)


def page_views(buffer: torch.Tensor, layout: PoolLayout) -> tuple[torch.Tensor, ...]:
    """Whole pages as uint8 ``[ranges, num_pages, bytes]``, padding included; aliases ``buffer``.

    One view where a page is an envelope; one a field, with a range a layer, where each layer is contiguous.
    """
    if layout.order == "page":
        start = min(field.base for field in layout.fields)
        size = layout.page_bytes
        return (buffer.as_strided((1, layout.num_pages, size), (size, size, 1), start),)
    return tuple(
        buffer.as_strided((len(f.layers), layout.num_pages, f.page_stride), (f.layer_stride, f.page_stride, 1), f.base)
        for f in layout.fields
    )


def poison_pages(buffer: torch.Tensor, layout: PoolLayout, pages: torch.Tensor) -> None:
    """Fill pages with NaN in floating fields and 0 in integer ones."""
    for field in layout.fields:
        fill = nan_byte(field.dtype)
        for group in field.layers:
            view = field_view(buffer, layout, field.name, "page", group[0])
            if field.itemsize == 1:
                view = view.view(torch.uint8)
                view[pages] = fill
            else:
                view[pages] = 0 if fill == 0 else float("nan")
