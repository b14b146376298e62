"""Pages and page tables; rows, pinned memory and events are left to the reference."""

from typing import Literal

import torch
from torch import Tensor


class AcmeMemoryOps:
    """``translate``, ``update_table``, ``copy_pages`` and ``zero_pages`` of ``statehal.hookspecs.MemoryOps``."""

    graph_capturable = True
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
        size = page_size if unit == "tokens" else 1
        pages, place = ids.div(size, rounding_mode="floor").long(), ids.remainder(size)
        # entry 0 of a table is the sink, and so is the one after the last page
        pages = pages.clamp(0, 2**31) if table is None else table[pages.clamp(0, len(table) - 1)]
        for multiplier, out in zip(multipliers, outs, strict=True):  # outs[0] may be ids, which are not read any more
            # a page that does not exist must not wrap around to one that does
            out.copy_((pages * multiplier + place).clamp(max=torch.iinfo(out.dtype).max))

    def update_table(self, table: Tensor, virtual_pages: Tensor, physical_pages: Tensor) -> None:
        table[virtual_pages] = physical_pages

    def copy_pages(self, views: tuple[Tensor, ...], src: Tensor, dst: Tensor) -> None:
        for view in views:
            view[:, dst] = view[:, src]  # the right side is a copy: all pages are read before any is written

    def zero_pages(self, views: tuple[Tensor, ...], pages: Tensor) -> None:
        for view in views:
            view[:, pages] = 0
