"""The slots of a conv sub-pool: windows under the offset protocol, cursors, recurrent rows, whole slots."""

import torch
from torch import Tensor

from statehal.pool import SubPool
from statehal.spec import ConvRecurrent


class Slots:
    """Reads and writes by slot id; a padding id stands for slot 0, the sink, which is read as zeros and never changed.

    A step of up to D tokens has positions: 0 to W-2 are the live rows, oldest first, and W-1 is its first token. The
    offset protocol keeps position p of a step in row p - 1 of the window; the cursor says where the live rows begin.

    Attributes:
        windows: by model layer id, ``[slots, window_rows, channels]``, stored channels first.
        recurrent: by model layer id, the bytes of each further field, ``[slots, ..., bytes]``.
        cursors: ``[slots]`` int32.
        pages: whole slots as bytes, ``[ranges, slots, bytes]`` each.
    """

    def __init__(self, sub: SubPool, spec: ConvRecurrent) -> None:
        self.history = spec.width - 1
        self.count = sub.layout.num_pages
        self.pages = sub.page_views
        self.cursors = sub.view("cursor", spec.layers[0], "page")[:, 0, 0]
        self.windows = {layer: sub.view("conv", layer, "page")[:, 0].transpose(1, 2) for layer in spec.layers}
        self.recurrent: dict[int, list[Tensor]] = {layer: [] for layer in spec.layers}
        for field in sub.layout.fields:
            for (layer,) in field.layers if field.name not in ("conv", "cursor") else ():
                self.recurrent[layer].append(sub.view(field.name, layer, "page")[:, 0].view(torch.uint8))

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which ids name a slot, and the ids with the sink in place of padding: ``[n]`` each."""
        live = (ids > 0) & (ids < self.count)
        return live, ids.where(live, 0).long()

    def live_rows(self, layer: int, ids: Tensor) -> Tensor:
        """The live rows of a layer, oldest first: ``[n, width - 1, channels]``; zeros for padding."""
        live, slots = self.find(ids)
        rows = self.cursors[slots][:, None] + torch.arange(self.history, device=ids.device)
        return masked(self.windows[layer][slots[:, None], rows], live)

    def place(self, layer: int, ids: Tensor, rows: Tensor, kept: Tensor) -> None:
        """Write ``rows`` ``[n, m, channels]`` at positions 1 to m of this step, where ``kept`` ``[n, m]``."""
        live, slots = self.find(ids)
        put(self.windows[layer][:, : rows.shape[1]], slots, rows, kept & live[:, None])

    def advance(self, ids: Tensor, accepted: Tensor) -> None:
        """Make positions ``accepted`` to ``accepted + W - 2`` live: no row has to move."""
        live, slots = self.find(ids)
        put(self.cursors, slots, accepted - 1, live)

    def restore(self, views: list[Tensor], ids: Tensor, source: Tensor, due: Tensor) -> None:
        """Copy recurrent rows of slots ``source`` to ``ids`` where ``due`` ``[n]``; a padding source gives zeros."""
        live, slots = self.find(ids)
        readable, origin = self.find(source)
        for view in views:
            put(view, slots, masked(view[origin], readable), live & due)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy whole slots, as if all were read before any is written; a padding source is an empty slot."""
        readable, origin = self.find(source)
        live, slots = self.find(target)
        for view in self.pages:
            view[:, slots] = view[:, origin] * (readable & live).to(torch.uint8)[:, None]

    def zero(self, ids: Tensor) -> None:
        """Make slots empty: all their bytes become zero."""
        _, slots = self.find(ids)
        for view in self.pages:
            view[:, slots] = 0


def masked(rows: Tensor, mask: Tensor) -> Tensor:
    """``rows`` ``[n, ...]``, and zeros where ``mask`` ``[n]`` is false, whatever was there."""
    return rows.where(mask.view(-1, *(1 for _ in rows.shape[1:])), 0).to(rows.dtype)


def put(view: Tensor, slots: Tensor, rows: Tensor, mask: Tensor) -> None:
    """``view[slots] = rows`` where ``mask``, which lacks trailing axes; elsewhere what is there is written back."""
    mask = mask.view(*mask.shape, *(1 for _ in rows.shape[mask.dim() :]))
    view[slots] = torch.where(mask, rows.to(view.dtype), view[slots])
