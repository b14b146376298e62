"""The method that is overridden."""

from torch import Tensor


class SiteMemoryOps:
    """``zero_pages`` of ``statehal.hookspecs.MemoryOps``."""

    graph_capturable = True
    host_sync_free = True

    def zero_pages(self, views: tuple[Tensor, ...], pages: Tensor) -> None:
        for view in views:
            view.index_fill_(1, pages, 0)
