"""Memory operations in plain torch, on any device."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments.memory import require_gather_out, require_scatter_rows
from statehal.hookspecs import Transfers
from statehal.reference.rows import as_words, blank_, live


class ReferenceMemoryOps(Transfers):
    """Implements ``statehal.hookspecs.MemoryOps``; see there for what each method reads and writes."""

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
        if unit == "tokens" and page_size > 1:
            pages = ids.div(page_size, rounding_mode="floor")
            place = ids.remainder(page_size)
        else:
            pages, place = ids, None
        if table is not None:
            # the entry after the last page is 0: ids out of range become the sink, and so do negative ones
            last = table.shape[0] - 1
            pages = table.index_select(0, pages.clamp(0, last).reshape(-1)).view(pages.shape)
        else:
            pages = pages.long().clamp(0, 2**31)
        for multiplier, out in zip(multipliers, outs, strict=True):
            if table is None:  # a page that does not exist must not wrap around to one that does
                result = pages * multiplier if place is None else pages * multiplier + place
                out.copy_(result.clamp(max=torch.iinfo(out.dtype).max))
            elif place is None:
                torch.mul(pages, multiplier, out=out)
            else:
                torch.add(place, pages, alpha=multiplier, out=out)

    def update_table(self, table: Tensor, virtual_pages: Tensor, physical_pages: Tensor) -> None:
        table.index_copy_(0, virtual_pages, physical_pages)

    def copy_pages(self, views: tuple[Tensor, ...], src: Tensor, dst: Tensor) -> None:
        for (view,) in map(as_words, views):
            view.index_copy_(1, dst, view.index_select(1, src))

    def zero_pages(self, views: tuple[Tensor, ...], pages: Tensor) -> None:
        for (view,) in map(as_words, views):
            view.index_fill_(1, pages, 0)

    def gather(self, view: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        require_gather_out(view, ids, out)
        if out is None:
            out = torch.empty((*ids.shape, *view.shape[1:]), dtype=view.dtype, device=view.device)
        stored, rows = as_words(view, out.detach())
        mask, safe = live(ids.reshape(-1), 0, view.shape[0])
        found = rows if ids.dim() == 1 else rows.new_empty((safe.numel(), *rows.shape[2:]))
        torch.index_select(stored, 0, safe, out=found)
        blank_(found, mask)
        if found is not rows:
            rows.copy_(found.view(rows.shape))
        return out

    def scatter(self, view: Tensor, ids: Tensor, rows: Tensor, *, first: int) -> None:
        require_scatter_rows(view, ids, rows)
        if not ids.shape[0]:
            return
        # A skipped row goes where the first that is written goes, or to row 0 where none is, and that row is put right
        # after it: so no id is left out, the device is not asked how many there are, and no row is copied twice.
        mask, _ = live(ids, first, view.shape[0])
        stored, given = as_words(view, rows.detach())
        some, anchor = mask.any(), mask.to(torch.int8).argmax(keepdim=True)
        place = ids[anchor].where(some, 0).long()
        right = given[anchor].where(some, stored[:1])
        try:
            stored.index_copy_(0, ids.where(mask, place), given)
        finally:
            stored.index_copy_(0, place, right)
