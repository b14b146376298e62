"""The slots of a conv sub-pool: dense windows for the operator, the same by slot, cursors and recurrent rows."""

import torch
from torch import Tensor

from statehal.errors import LayoutError
from statehal.layout import AddressForm
from statehal.pool import SubPool
from statehal.spec import ConvRecurrent
from statehal_ascend_npu.masks import masked


class Slots:
    """Views of one sub-pool.

    With ``L = width - 1`` live rows, positions ``0 .. L-1`` of a step are its history, oldest first, and ``L + j`` is
    its j-th token. Until the commit, position p lies in row ``p - 1`` of the window. A slot that is padding stands for
    slot 0, the sink: it is read as zeros, and what is written to it is what it holds.

    Attributes:
        history: ``L``.
        rows: of a window.
        drafts: most tokens of a step.
        ratio: entries of ``dense`` from one slot to the next.
        dense: by model layer id, ``[entries, rows, channels]``, contiguous, channels padded: what operators take.
        windows: by model layer id, ``[slots, rows, channels]``, strided, channels padded.
        recurrent: by model layer id, the bytes of each further field, ``[slots, ..., bytes]``.
        cursors: ``[slots]`` int32.
        pages: whole slots as bytes, ``[ranges, slots, bytes]`` each.
        rollback: whether live rows end the window; else they begin at the cursor.
    """

    def __init__(self, sub: SubPool, spec: ConvRecurrent) -> None:
        conv = sub.layout.conv
        assert conv is not None
        self.history, self.rows, self.drafts = spec.width - 1, spec.window_rows, spec.verify_tokens
        self.channels = conv.padded(spec.channels)
        self.count = sub.layout.num_pages
        self.rollback = conv.protocol == "rollback"
        self.ratio = dense_form(sub).ratio
        self.dense = {layer: sub.view("conv", layer, "row") for layer in spec.layers}
        self.windows = {layer: sub.view("conv", layer, "page")[:, 0] for layer in spec.layers}
        self.cursors = sub.view("cursor", spec.layers[0], "page")[:, 0, 0]
        self.pages = sub.page_views
        self.recurrent: dict[int, list[Tensor]] = {layer: [] for layer in spec.layers}
        for field in sub.layout.fields:
            for (layer,) in field.layers if field.name not in ("conv", "cursor") else ():
                self.recurrent[layer].append(sub.view(field.name, layer, "page")[:, 0].view(torch.uint8))

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Which ids name a slot that may be written, and the ids with the sink in place of all others, int64."""
        live = (ids > 0) & (ids < self.count)
        return live, ids.where(live, 0).long()

    def first_live(self, slots: Tensor) -> Tensor:
        """The row in which the live rows of each slot begin, int64 ``[n]``."""
        if self.rollback:
            return torch.full_like(slots, self.rows - self.history)
        return self.cursors[slots].long()

    def live_rows(self, layer: int, slots: Tensor, first: Tensor, mask: Tensor) -> Tensor:
        """Live rows ``[n, L, channels]`` of slots whose live rows begin at ``first``; zeros where ``mask`` is false."""
        rows = first[:, None] + torch.arange(self.history, device=slots.device)
        return masked(self.windows[layer][slots[:, None], rows], mask)

    def place(self, layer: int, slots: Tensor, rows: Tensor, mask: Tensor) -> None:
        """Write ``rows`` ``[n, m, channels]`` into rows 0 to m-1 of windows, where ``mask`` ``[n]`` or ``[n, m]``."""
        put(self.windows[layer][:, : rows.shape[1], : rows.shape[2]], slots, rows, mask)

    def save(self, layer: int, slots: Tensor, rows: Tensor, mask: Tensor) -> None:
        """Make ``rows`` ``[n, L, channels]`` the live rows of slots, at their own cursors, where ``mask`` ``[n]``."""
        at = self.first_live(slots)[:, None] + torch.arange(self.history, device=slots.device)
        view = self.windows[layer][..., : rows.shape[2]]
        view[slots[:, None], at] = torch.where(mask[:, None, None], rows.to(view.dtype), view[slots[:, None], at])


def dense_form(sub: SubPool) -> AddressForm:
    """The row form of a sub-pool's windows, in which one layer is one contiguous tensor.

    Raises:
        LayoutError: it is not in use, or a layer's windows are not dense in it.
    """
    where = f"conv windows of {sub.name!r}"
    if "row" not in sub.layout.kinds("conv"):
        raise LayoutError(
            f"{where} are laid out in the forms {sub.layout.kinds('conv')}: the conv operator needs each layer dense, "
            f"in the row form (fix: let the backend 'ascend_npu' choose the layout of slots)"
        )
    form = sub.layout.form("conv", "row")
    for group in sub.layout.field("conv").layers:
        view = sub.view("conv", group[0], "row")
        if not view.is_contiguous():
            raise LayoutError(
                f"{where}: layer {group[0]} is {tuple(view.shape)} with strides {view.stride()}, which is not dense: "
                f"the conv operator would read and write rows of others (fix: let the backend 'ascend_npu' choose the "
                f"layout of slots)"
            )
    return form


def put(view: Tensor, slots: Tensor, rows: Tensor, mask: Tensor) -> None:
    """``view[slots] = rows`` where ``mask``, which lacks trailing axes; elsewhere what is there is written back."""
    mask = mask.view(*mask.shape, *(1 for _ in rows.shape[mask.dim() :]))
    view[slots] = torch.where(mask, rows.to(view.dtype), view[slots])
