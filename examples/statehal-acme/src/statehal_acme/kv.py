"""Writes into the KV pool, by page and place in the page; ``rope_write`` and ``write_latent`` are the reference's."""

import torch
from torch import Tensor

from statehal.arguments import KVArguments
from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds


class AcmeKVWriter:
    """Methods of ``statehal.hookspecs.KVWriter``, for one sub-pool.

    All views are of the page form, ``[pages, page_size, *row]``: a token's id is ``page * page_size + place``, the
    same for every field and layer. Where a page's rows lie is in the views' strides, whatever the layout is.
    """

    graph_capturable = True
    host_sync_free = True

    def __init__(self, request: KVWriteRequest) -> None:
        sub = request.subpool
        self._arguments = KVArguments(request)
        self._form = sub.forms.index(sub.layout.form("k", "page"))
        self._page_size, self._pages = sub.page_size, sub.layout.num_pages
        self._views: dict[str, dict[int, Tensor]] = {}
        self._rows: list[Tensor] = []  # every view once: layers may share rows
        for field in sub.layout.fields:
            stored = [(group, sub.view(field.name, group[0], "page")) for group in field.layers]
            self._views[field.name] = {layer: view for group, view in stored for layer in group}
            self._rows += [view for _, view in stored]

    def write(
        self,
        layer: int,
        ids: KernelIds,
        k: Tensor,
        v: Tensor,
        *,
        k_scale: Tensor | float | None = None,
        v_scale: Tensor | float | None = None,
    ) -> None:
        stored, index = self._places(self._arguments.write(layer, ids, k, v, k_scale, v_scale))
        for name, rows in (("k", k), ("v", v)):
            self._views[name][layer][index] = _kept(rows.detach(), stored)

    def move(self, dst: KernelIds, src: KernelIds) -> None:
        targets, sources = self._arguments.move(dst, src)
        stored, to = self._places(targets)
        readable, at = self._places(sources)
        for view in self._rows:
            view[to] = _kept(view[at], stored & readable)

    def _places(self, ids: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Which tokens name a row, and the page and place of each; all others go to page 0, the sink."""
        tokens = ids[self._form].reshape(-1)
        stored = (tokens >= self._page_size) & (tokens < self._pages * self._page_size)
        tokens = tokens.where(stored, 0)
        return stored, (tokens.div(self._page_size, rounding_mode="floor"), tokens.remainder(self._page_size))


def _kept(rows: Tensor, stored: Tensor) -> Tensor:
    """``rows`` ``[tokens, ...]``, and zeros for padding: the sink holds zeros, so that storing them changes nothing.

    No row is left out: the device is never asked how many there are.
    """
    return torch.where(stored.view(-1, *(1 for _ in rows.shape[1:])), rows, 0).to(rows.dtype)
