"""Memory operations in plain torch, on any device."""

from typing import Any, Literal

import torch
from torch import Tensor

from statehal.arguments.memory import require_gather_out, require_scatter_rows
from statehal.reference.rows import as_bits, blank_, live


class ReferenceMemoryOps:
    """Implements ``statehal.hookspecs.MemoryOps``; see there for what each method reads and writes."""

    graph_capturable = True
    host_sync_free = True

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        kind = self._device.type
        self._module = None if kind == "cpu" else torch.get_device_module(kind)

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
        for view in views:
            view.index_copy_(1, dst, view.index_select(1, src))

    def zero_pages(self, views: tuple[Tensor, ...], pages: Tensor) -> None:
        for view in views:
            view.index_fill_(1, pages, 0)

    def gather(self, view: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        require_gather_out(view, ids, out)
        mask, safe = live(ids, 0, view.shape[0])
        result = blank_(as_bits(view).index_select(0, safe), mask).view(view.dtype)
        return result if out is None else out.copy_(result)

    def scatter(self, view: Tensor, ids: Tensor, rows: Tensor, *, first: int) -> None:
        require_scatter_rows(view, ids, rows)
        if not ids.shape[0]:
            return
        # A skipped row repeats the first that is written, or row 0 as it is where none is: so no id is left out, the
        # device is not asked how many there are, and nothing but the rows named changes.
        mask, _ = live(ids, first, view.shape[0])
        stored, given, some = as_bits(view), as_bits(rows.detach()), mask.any()
        anchor = mask.to(torch.int8).argmax(keepdim=True)
        target = ids.where(mask, ids[anchor].where(some, 0))
        spread = mask.view(-1, *(1 for _ in view.shape[1:]))
        stored[target] = given.where(spread, given[anchor].where(some, stored[:1]))

    def alloc_pinned(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._module is not None)

    def record(self, stream: Any = None) -> Any:
        if self._module is None:
            return None  # the host has done the work when the call returns
        event = self._module.Event()
        # without a stream it would be the present one of the present device
        event.record(self._module.current_stream(self._device) if stream is None else stream)
        return event

    def wait(self, event: Any) -> None:
        if event is not None:
            event.synchronize()
