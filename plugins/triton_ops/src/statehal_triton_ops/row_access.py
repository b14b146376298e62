"""Reads and writes of rows of strided views by id."""

from torch import Tensor

from statehal_triton_ops.axes import merged, row_tile, widest
from statehal_triton_ops.fields import as_bits
from statehal_triton_ops.kernels import rows as kernels
from statehal_triton_ops.launch import launch


def gather(view: Tensor, ids: Tensor, out: Tensor) -> None:
    """``out[i] = view[ids[i]]``, zeros where the view has no such row.

    Args:
        view: ``[rows, *row_shape]``, strided.
        ids: integers ``[n]``.
        out: ``[n, *row_shape]``, strided.
    """
    _launch("gather", view, ids, out, ())


def scatter(view: Tensor, ids: Tensor, rows: Tensor, first: int) -> None:
    """``view[ids[i]] = rows[i]`` for ids from ``first`` on that the view has; arguments as of ``gather``."""
    _launch("scatter", view, ids, rows, (first,))


def _launch(name: str, view: Tensor, ids: Tensor, dense: Tensor, arguments: tuple[int, ...]) -> None:
    if not dense.numel():
        return
    size = view.dtype.itemsize
    axes = merged(view.shape[1:], view.stride()[1:], dense.stride()[1:])
    run = axes.pop().size * size if axes and axes[-1].strides == (1, 1) else size
    if len(axes) > 2:
        for index in range(view.shape[1]):
            _launch(name, view.select(1, index), ids, dense.select(1, index), arguments)
        return
    outer, middle = [(1, (0, 0))] * (2 - len(axes)) + [(axis.size, axis.strides) for axis in axes]
    strides = [
        (one.stride(0) * size if one.shape[0] > 1 else 0, outer[1][side] * size, middle[1][side] * size)
        for side, one in enumerate((view, dense))
    ]
    unit = widest(view.data_ptr(), dense.data_ptr(), run, *strides[0], *strides[1])
    stored, given = (
        kernels.Rows(one, one.shape[0], s_row // unit, s_outer // unit, s_middle // unit, middle[0], run // unit)
        for one, (s_row, s_outer, s_middle) in zip((as_bits(view), as_bits(dense)), strides, strict=True)
    )
    units = outer[0] * middle[0] * run // unit
    tile = row_tile(units)
    launch(
        getattr(kernels, name),
        (tile.chunks * -(-dense.shape[0] // tile.rows),),
        ids,
        stored,
        given,
        ids.stride(0),
        *arguments,
        units,
        tile.chunks,
        num_warps=tile.warps,
        AXES=len(axes),
        UNIT=unit,
        ROWS=tile.rows,
        UNITS=tile.units,
    )
