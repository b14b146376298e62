"""Doing on the device what the accounts owe it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from statehal.pool.forks import refuse
from statehal.pool.graphs import outside
from statehal.pool.views import poison_pages
from statehal.pool.work import WorkItem
from statehal.pool.work_queue import Batch, WorkQueue

if TYPE_CHECKING:
    from statehal.pool.state_pool import StatePool


class DeviceWork:
    """Uploads a pool's work and executes it; what is interrupted stays owed, once and in order.

    Attributes:
        queue: where the accounts put it.
    """

    def __init__(self, pool: "StatePool") -> None:
        self._pool = pool
        self.queue = WorkQueue()

    def drain(self) -> tuple[WorkItem, ...]:
        """See ``StatePool.drain_work``."""
        _, work = self._upload()
        self.queue.keep(())
        return work

    def flush(self) -> tuple[WorkItem, ...]:
        """See ``StatePool.flush``."""
        refuse(self._pool)
        if not self.queue:
            return ()
        batches, work = self._upload()
        left = self.queue.keep(batches)
        for item in work:
            self.run((item,))
            del left[0]  # not before it is done: an item may be done twice, because its elements are independent
        self.queue.keep(())
        return work

    def run(self, work: Iterable[WorkItem]) -> None:
        """See ``StatePool.run``."""
        pool = self._pool
        for item in work:
            sub = pool.subpools[item.subpool]
            if item.kind == "table":
                pool.ops.update_table(sub.table, item.first, item.second)
            elif item.kind == "copy":
                pool.ops.copy_pages(sub.page_views, item.first, item.second)
            elif item.kind == "zero":
                pool.ops.zero_pages(sub.page_views, item.first)
            else:
                poison_pages(pool.buffer, sub.layout, item.first)

    def _upload(self) -> tuple[list[Batch], tuple[WorkItem, ...]]:
        """Everything that is owed, and the same with its ids on the device; all of it is still owed afterwards."""
        outside("pending work of a pool", "it would be done at each run (fix: call flush() or kernel_ids() before)")
        refuse(self._pool)
        batches = self.queue.take()
        return batches, upload(batches, self._pool.device) if batches else ()


def upload(batches: Sequence[Batch], device: torch.device) -> tuple[WorkItem, ...]:
    """Work items, one a batch, whose ids are parts of one tensor on ``device``."""
    parts: list[tuple[list[int], list[int]]] = []
    for (kind, _), pages in batches:
        keys, values = list(pages), list(pages.values())
        parts.append((values, keys) if kind == "copy" else (keys, values if kind == "table" else []))
    flat = [one for pair in parts for part in pair for one in part]
    ids = torch.tensor(flat, dtype=torch.int64, device="cpu")
    if device.type != "cpu":
        ids = ids.pin_memory().to(device, non_blocking=True)
    tensors = iter(torch.split(ids, [len(part) for pair in parts for part in pair]))
    items = [(key, next(tensors), next(tensors)) for key, _ in batches]
    return tuple(
        WorkItem(kind, subpool, first, second if kind in ("copy", "table") else None)
        for (kind, subpool), first, second in items
    )
