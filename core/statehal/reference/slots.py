"""The slots of a conv sub-pool: windows, cursors and recurrent rows of all layers, read and written by mask."""

import torch
from torch import Tensor

from statehal.pool import SubPool
from statehal.reference.protocol import make_protocol
from statehal.reference.rows import as_bits, blank, live
from statehal.spec import REPLAY, ConvRecurrent


class Slots:
    """Views of one sub-pool.

    Slot ids are page-form kernel ids ``[n]``. A slot that is padding stands for slot 0, the sink, which holds zeros: it
    is read as zeros, and what is written to it is what it holds.

    Attributes:
        windows: by model layer id, ``[slots, window_rows, channels]``.
        recurrent: by model layer id, the views ``[slots, *row]`` of every recurrent field that has the layer.
        replay: by model layer id, the view ``[slots, window_rows, *row]`` of the replay ring, if the layer has one.
        states, rings: all views of ``recurrent`` and of ``replay``.
        cursors: ``[slots]`` int32.
        pages: whole slots as bytes, ``[ranges, slots, bytes]`` each.
    """

    def __init__(self, sub: SubPool, spec: ConvRecurrent) -> None:
        assert sub.layout.conv is not None
        self.count = sub.layout.num_pages
        self.pages = sub.page_views
        self.protocol = make_protocol(sub.layout.conv, spec.width, spec.window_rows)
        self.cursors = sub.view("cursor", spec.layers[0], "page")[:, 0, 0]
        self.windows: dict[int, Tensor] = {}
        self.recurrent: dict[int, list[Tensor]] = {}
        self.replay: dict[int, list[Tensor]] = {}
        for layer in spec.layers:
            window = sub.view("conv", layer, "page")[:, 0]
            if sub.layout.conv.window_order == "channels_first":
                window = window.transpose(1, 2)
            self.windows[layer] = window[..., : spec.channels]
            self.recurrent[layer], self.replay[layer] = [], []
        for field in sub.layout.fields:
            for (layer,) in field.layers if field.name not in ("conv", "cursor") else ():
                rows = self.replay if field.name == REPLAY else self.recurrent
                rows[layer].append(as_bits(sub.view(field.name, layer, "page")[:, 0]))
        self.states = [view for views in self.recurrent.values() for view in views]
        self.rings = [view for views in self.replay.values() for view in views]

    def live(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which ids name a slot that may be written, and the ids with padding replaced by the sink."""
        return live(ids, 1, self.count)

    def history(self, layer: int, ids: Tensor) -> Tensor:
        """Live rows ``[n, width - 1, channels]``, oldest first; zeros for padding."""
        valid, safe = self.live(ids)
        return blank(self.windows[layer][safe[:, None], self.protocol.live(self.cursors[safe])], valid)

    def place(self, layer: int, ids: Tensor, positions: Tensor, rows: Tensor, mask: Tensor) -> None:
        """Write ``rows`` ``[n, m, channels]`` at positions ``[n, m]`` of the present step where ``mask`` ``[n, m]``."""
        valid, safe = self.live(ids)
        index = safe[:, None], self.protocol.placed(self.cursors[safe], positions)
        put(self.windows[layer], index, rows, mask & valid[:, None])


def put(view: Tensor, index: tuple[Tensor, ...], rows: Tensor, mask: Tensor) -> None:
    """``view[index] = rows`` where ``mask``; elsewhere the rows are written back as they are."""
    spread = mask.view(mask.shape + (1,) * (rows.dim() - mask.dim()))
    view[index] = torch.where(spread, rows.to(view.dtype), view[index])
