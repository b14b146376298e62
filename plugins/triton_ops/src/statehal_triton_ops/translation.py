"""Id translation, and updates of the page table that it reads."""

from typing import Literal

from torch import Tensor

from statehal.errors import ArgumentError
from statehal_triton_ops.axes import Axis, flat_ids, merged
from statehal_triton_ops.kernels import translate as kernels
from statehal_triton_ops.launch import launch

BLOCK = 512
"""Ids a program takes: of four warps each thread reads at least 8 bytes of them, in waves of 64 and of int32 too."""

OUTS = 4
"""Forms that one launch translates for; further ones take further launches."""


def translate(
    ids: Tensor,
    table: Tensor | None,
    page_size: int,
    multipliers: tuple[int, ...],
    outs: tuple[Tensor, ...],
    unit: Literal["tokens", "pages"],
) -> None:
    """``MemoryOps.translate``: one launch for up to four outs and two axes that strides do not join."""
    forms = list(zip(multipliers, outs, strict=True))
    for out in outs:
        if out.shape != ids.shape:
            raise ArgumentError(
                f"translate: an out has shape {list(out.shape)}: expected {list(ids.shape)}, as the ids"
            )
    if not ids.numel():
        return
    for start in range(0, len(forms), OUTS):
        _translate(ids, table, page_size, forms[start : start + OUTS], unit == "tokens" and page_size > 1)


def update_table(table: Tensor, virtual_pages: Tensor, physical_pages: Tensor) -> None:
    """``MemoryOps.update_table``; an entry that the table does not have is left out."""
    if virtual_pages.shape != physical_pages.shape:
        raise ArgumentError(
            f"update_table: physical_pages has shape {list(physical_pages.shape)}: expected "
            f"{list(virtual_pages.shape)}, as virtual_pages"
        )
    count = virtual_pages.numel()
    if not count:
        return
    launch(
        kernels.update_table,
        (-(-count // BLOCK),),
        table,
        flat_ids(virtual_pages),
        flat_ids(physical_pages),
        count,
        table.shape[0],
        table.stride(0),
        BLOCK=BLOCK,
    )


def _translate(
    ids: Tensor, table: Tensor | None, page_size: int, forms: list[tuple[int, Tensor]], places: bool
) -> None:
    axes = merged(ids.shape, ids.stride(), *(out.stride() for _, out in forms))
    if len(axes) > 2:
        for index in range(ids.shape[0]):
            _translate(ids[index], table, page_size, [(by, out[index]) for by, out in forms], places)
        return
    one = Axis(1, (0,) * (1 + len(forms)))
    rows, columns = [one] * (2 - len(axes)) + axes
    launch(
        kernels.translate,
        (-(-ids.numel() // BLOCK),),
        ids,
        table,
        tuple(kernels.Out(out, by, rows.strides[1 + n], columns.strides[1 + n]) for n, (by, out) in enumerate(forms)),
        ids.numel(),
        columns.size,
        page_size,
        0 if table is None else table.shape[0] - 1,
        rows.strides[0],
        columns.strides[0],
        0 if table is None else table.stride(0),
        PLACES=places,
        ROWS=rows.size > 1,
        BLOCK=BLOCK,
    )
