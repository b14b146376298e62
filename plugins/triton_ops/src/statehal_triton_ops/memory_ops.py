"""Memory operations of a device by Triton kernels."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments.memory import require_gather_out, require_scatter_rows
from statehal.hookspecs import Transfers
from statehal_triton_ops.launch import CAPTURABLE
from statehal_triton_ops.page_copies import copy_pages, zero_pages
from statehal_triton_ops.row_access import gather, scatter
from statehal_triton_ops.translation import translate, update_table


class TritonMemoryOps(Transfers):
    """Implements ``statehal.hookspecs.MemoryOps``; see there for what each method reads and writes.

    Every method is one launch (``copy_pages`` and ``zero_pages`` one a view) and allocates nothing besides its result,
    but for: more than four outs of ``translate``, or ids of more than two axes that strides do not join; rows of more
    than three axes; and ``copy_pages`` of more than 4096 pages, which takes two launches and scratch memory.
    """

    graph_capturable = CAPTURABLE
    host_sync_free = True

    def translate(
        self,
        ids: Tensor,
        table: Tensor | None,
        page_size: int,
        multipliers: tuple[int, ...],
        outs: tuple[Tensor, ...],
        unit: Literal["tokens", "pages"],
    ) -> None:
        translate(ids, table, page_size, multipliers, outs, unit)

    def update_table(self, table: Tensor, virtual_pages: Tensor, physical_pages: Tensor) -> None:
        update_table(table, virtual_pages, physical_pages)

    def copy_pages(self, views: tuple[Tensor, ...], src: Tensor, dst: Tensor) -> None:
        copy_pages(views, src, dst)

    def zero_pages(self, views: tuple[Tensor, ...], pages: Tensor) -> None:
        zero_pages(views, pages)

    def gather(self, view: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        require_gather_out(view, ids, out)
        if out is None:
            out = torch.empty((*ids.shape, *view.shape[1:]), dtype=view.dtype, device=view.device)
        gather(view, ids, out)
        return out

    def scatter(self, view: Tensor, ids: Tensor, rows: Tensor, *, first: int) -> None:
        require_scatter_rows(view, ids, rows)
        scatter(view, ids, rows, first)
