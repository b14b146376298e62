"""Arguments of row gathers and scatters."""

from torch import Tensor

from statehal.arguments.tensors import INDEX, describe
from statehal.errors import ArgumentError


def require_gather_out(view: Tensor, ids: Tensor, out: Tensor | None) -> None:
    """Refuse ids that do not fit, and an ``out`` that cannot take the rows ``ids`` of ``view``."""
    _require_ids(view, ids, (1, 2))
    _require_stored("view", view)
    expected = (*ids.shape, *view.shape[1:])
    if out is None:
        return
    if out.shape != expected or out.dtype != view.dtype:
        raise ArgumentError(f"out is {out.dtype} {tuple(out.shape)}: expected {view.dtype} {expected}")
    _require_stored("out", out)


def require_scatter_rows(view: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Refuse ids that do not fit, and ``rows`` that are not one row of ``view`` for each of ``ids``."""
    _require_ids(view, ids, (1,))
    _require_stored("view", view)
    expected = (ids.shape[0], *view.shape[1:])
    if tuple(rows.shape) != expected or rows.dtype != view.dtype:
        raise ArgumentError(f"rows is {rows.dtype} {list(rows.shape)}: expected {view.dtype} {list(expected)}")
    _require_stored("rows", rows)


def _require_stored(name: str, tensor: Tensor) -> None:
    """Refuse a view whose values are not what lies in memory, which is what kernels read and write."""
    if tensor.is_neg():
        raise ArgumentError(f"{name} is negated lazily: expected values as they are stored (fix: {name}.resolve_neg())")


def _require_ids(view: Tensor, ids: Tensor, axes: tuple[int, ...]) -> None:
    if ids.dim() not in axes or ids.dtype not in INDEX or ids.device != view.device:
        shapes = " or ".join("[batch, n]" if one == 2 else "[n]" for one in axes)
        raise ArgumentError(f"ids are {describe(ids)}: expected int32 or int64 {shapes} on {view.device}")
