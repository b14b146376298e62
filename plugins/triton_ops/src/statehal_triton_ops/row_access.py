"""Reads and writes of rows of strided views by id."""

from typing import NamedTuple

from torch import Tensor

from statehal_triton_ops.axes import merged, row_tile, widest
from statehal_triton_ops.fields import as_bits
from statehal_triton_ops.kernels import rows as kernels
from statehal_triton_ops.launch import launch


class Dense(NamedTuple):
    """One row for each id, as often as there are batches.

    Attributes:
        rows: ``[n, *row_shape]`` of the first batch.
        batches: how many.
        s_batch: elements between the first rows of two batches.
    """

    rows: Tensor
    batches: int = 1
    s_batch: int = 0


def gather(view: Tensor, ids: Tensor, out: Tensor) -> None:
    """``out[i] = view[ids[i]]``, zeros where the view has no such row.

    Args:
        view: ``[rows, *row_shape]``, strided.
        ids: integers ``[n]`` or ``[batch, n]``.
        out: ``[*ids.shape, *row_shape]``, strided.
    """
    if out.numel():
        dense = Dense(out) if ids.dim() == 1 else Dense(out[0], out.shape[0], out.stride(0))
        _launch("gather", view, ids.reshape(-1), dense)


def scatter(view: Tensor, ids: Tensor, rows: Tensor, first: int) -> None:
    """``view[ids[i]] = rows[i]`` for ids ``[n]`` from ``first`` on that the view has; the rest as of ``gather``."""
    if rows.numel():
        _launch("scatter", view, ids, Dense(rows), first)


def _launch(name: str, view: Tensor, ids: Tensor, dense: Dense, first: int | None = None) -> None:
    rows, size = dense.rows, view.dtype.itemsize
    axes = merged(view.shape[1:], view.stride()[1:], rows.stride()[1:])
    run = axes.pop().size * size if axes and axes[-1].strides == (1, 1) else size
    if len(axes) > 2:
        for index in range(view.shape[1]):
            _launch(name, view.select(1, index), ids, dense._replace(rows=rows.select(1, index)), first)
        return
    outer, middle = [(1, (0, 0))] * (2 - len(axes)) + [(axis.size, axis.strides) for axis in axes]
    strides = [
        (one.stride(0) * size if one.shape[0] > 1 else 0, outer[1][side] * size, middle[1][side] * size)
        for side, one in enumerate((view, rows))
    ]
    s_batch = dense.s_batch * size if dense.batches > 1 else 0
    unit = widest(view.data_ptr(), rows.data_ptr(), run, *strides[0], *strides[1], s_batch)
    counts = view.shape[0], rows.shape[0] * dense.batches
    stored, given = (
        kernels.Rows(one, count, s_row // unit, s_outer // unit, s_middle // unit, middle[0], run // unit)
        for one, count, (s_row, s_outer, s_middle) in zip((as_bits(view), as_bits(rows)), counts, strides, strict=True)
    )
    units = outer[0] * middle[0] * run // unit
    tile = row_tile(units)
    options = {"BATCHES": dense.batches > 1} if first is None else {}
    launch(
        getattr(kernels, name),
        (tile.chunks * -(-given.count // tile.rows),),
        ids,
        stored,
        given,
        ids.stride(0),
        *((rows.shape[0], s_batch // unit) if first is None else (first,)),
        units,
        tile.chunks,
        num_warps=tile.warps,
        AXES=len(axes),
        UNIT=unit,
        ROWS=tile.rows,
        UNITS=tile.units,
        **options,
    )
