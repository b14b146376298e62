"""Memory operations by the extension."""

from typing import Literal

import torch
from torch import Tensor

from statehal.arguments.memory import require_gather_out, require_scatter_rows
from statehal.errors import ArgumentError
from statehal.hookspecs import Transfers
from statehal_cpu.probe import load


class CpuMemoryOps(Transfers):
    """Implements ``statehal.hookspecs.MemoryOps``; see there for what each method reads and writes.

    Raises:
        ArgumentError: a page or an entry of the table is named that does not exist; nothing was written.
    """

    graph_capturable = False  # a host has no graphs, and nothing of torch would record the kernels
    host_sync_free = True

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._native = load()

    def translate(
        self,
        ids: Tensor,
        table: Tensor | None,
        page_size: int,
        multipliers: tuple[int, ...],
        outs: tuple[Tensor, ...],
        unit: Literal["tokens", "pages"],
    ) -> None:
        for out in outs:
            if out.shape != ids.shape:
                raise ArgumentError(
                    f"translate: an out has shape {list(out.shape)}: expected {list(ids.shape)}, as the ids"
                )
        page = page_size if unit == "tokens" else 1
        self._native.translate(ids, table, page, outs, multipliers, torch.get_num_threads())

    def update_table(self, table: Tensor, virtual_pages: Tensor, physical_pages: Tensor) -> None:
        if virtual_pages.shape != physical_pages.shape:
            raise ArgumentError(
                f"update_table: physical_pages has shape {list(physical_pages.shape)}: expected "
                f"{list(virtual_pages.shape)}, as virtual_pages"
            )
        keys = virtual_pages.reshape(-1)
        wrong = self._native.first_outside(keys, table.shape[0])
        if wrong >= 0:
            raise ArgumentError(
                f"update_table: no entry {int(keys[wrong])} in a table of {table.shape[0]}; none was set"
            )
        self._native.update_table(table, keys, physical_pages.reshape(-1))

    def copy_pages(self, views: tuple[Tensor, ...], src: Tensor, dst: Tensor) -> None:
        threads = torch.get_num_threads()
        if self._native.copy_pages(views, src, dst, threads):
            return
        if src.shape != dst.shape:
            raise ArgumentError(
                f"copy_pages: dst has shape {list(dst.shape)} and src {list(src.shape)}: expected one shape"
            )
        source, target = src.reshape(-1), dst.reshape(-1)
        self._require_pages("copy_pages", views, source, target)
        done = self._native.copy_pages(views, source, target, threads)
        assert done, "the extension takes what was not refused"

    def zero_pages(self, views: tuple[Tensor, ...], pages: Tensor) -> None:
        threads = torch.get_num_threads()
        if self._native.zero_pages(views, pages, threads):
            return
        target = pages.reshape(-1)
        self._require_pages("zero_pages", views, target)
        done = self._native.zero_pages(views, target, threads)
        assert done, "the extension takes what was not refused"

    def gather(self, view: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        require_gather_out(view, ids, out)
        if out is None:
            out = view.new_empty((*ids.shape, *view.shape[1:]))
        self._native.gather(view, ids, out, torch.get_num_threads())
        return out

    def scatter(self, view: Tensor, ids: Tensor, rows: Tensor, *, first: int) -> None:
        require_scatter_rows(view, ids, rows)
        self._native.scatter(view, ids, rows, first, torch.get_num_threads())

    def _require_pages(self, name: str, views: tuple[Tensor, ...], *given: Tensor) -> None:
        """Refuse views that hold no pages, and pages that one of them does not have."""
        for view in views:
            if view.dtype != torch.uint8 or (view.shape[2] > 1 and view.stride(2) != 1):
                raise ArgumentError(
                    f"{name}: a view of pages is {view.dtype} {list(view.shape)} with strides {list(view.stride())}: "
                    f"expected torch.uint8 [ranges, pages, bytes] with bytes side by side"
                )
            for pages in given:
                wrong = self._native.first_outside(pages, view.shape[1])
                if wrong >= 0:
                    raise ArgumentError(
                        f"{name}: no page {int(pages[wrong])} in a view of {view.shape[1]}; nothing was written"
                    )
