"""Copies and zeroing of whole pages, each one launch a view; more than 4096 pages are copied in two.

Views are uint8 ``[ranges, pages, bytes]``, as in ``statehal.hookspecs.MemoryOps``.
"""

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal_triton_ops.axes import MOST_PAIRS, copy_tile, flat_ids, row_tile, widest
from statehal_triton_ops.kernels import pages as kernels
from statehal_triton_ops.launch import launch


def copy_pages(views: tuple[Tensor, ...], src: Tensor, dst: Tensor, *, first: int = 0) -> None:
    """Copy pages ``src[i]`` to ``dst[i]``, as if all were read before any is written.

    Args:
        views: written at ``dst``.
        src: ``[n]``; a page below ``first`` or past the view is zeros.
        dst: ``[n]``; a page below ``first`` or past the view is not written. No page twice.
        first: the smallest page that is not padding.
    """
    if src.shape != dst.shape:
        raise ArgumentError(
            f"copy_pages: dst has shape {list(dst.shape)} and src {list(src.shape)}: expected one shape"
        )
    pairs = src.numel()
    if not pairs:
        return
    target, source = flat_ids(dst), flat_ids(src)
    for view in views:
        pages, unit = _pages(view, first)
        if not pages.size:
            continue
        tile, scratch, steps = copy_tile(pairs, pages.size), view, [(True, True)]
        if pairs > MOST_PAIRS:
            tile, steps = row_tile(pages.size), [(True, False), (False, True)]
            scratch = torch.empty(view.shape[0] * pairs * view.shape[2], dtype=torch.uint8, device=view.device)
        for reads, writes in steps:
            launch(
                kernels.copy_pages,
                (tile.chunks * -(-pairs // tile.rows), view.shape[0]),
                pages,
                scratch,
                target,
                source,
                pairs,
                tile.chunks,
                num_warps=tile.warps,
                UNIT=unit,
                ROWS=tile.rows,
                UNITS=tile.units,
                READS=reads,
                WRITES=writes,
            )


def zero_pages(views: tuple[Tensor, ...], pages: Tensor, *, first: int = 0) -> None:
    """Zero the bytes of ``pages`` ``[n]``; pages below ``first`` and past a view are left alone."""
    count = pages.numel()
    if not count:
        return
    ids = flat_ids(pages)
    for view in views:
        target, unit = _pages(view, first)
        if not target.size:
            continue
        tile = row_tile(target.size)
        launch(
            kernels.zero_pages,
            (tile.chunks * -(-count // tile.rows), view.shape[0]),
            ids.ptr,
            target,
            ids.stride,
            count,
            tile.chunks,
            num_warps=tile.warps,
            UNIT=unit,
            ROWS=tile.rows,
            UNITS=tile.units,
        )


def _pages(view: Tensor, first: int) -> tuple[kernels.Pages, int]:
    """A view in its widest units, and the bytes of one."""
    ranges, count, size = view.shape
    if view.dtype != torch.uint8 or (size > 1 and view.stride(2) != 1):
        raise ArgumentError(
            f"a view of pages is {view.dtype} {list(view.shape)} with strides {list(view.stride())}: expected "
            f"torch.uint8 [ranges, pages, bytes] with bytes side by side"
        )
    s_range = view.stride(0) if ranges > 1 else 0
    s_page = view.stride(1) if count > 1 else 0
    unit = widest(view.data_ptr(), s_range, s_page, size)
    return kernels.Pages(view, s_range // unit, s_page // unit, size // unit, first, count), unit
