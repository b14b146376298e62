"""Masked stores into strided views, without a host sync."""

from math import gcd

import torch
from torch import Tensor

from statehal.layout import FormKind
from statehal.pool import SubPool


def live(ids: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Which ids name a row that may be written, and the ids with all others replaced by 0, a row of the sink."""
    mask = (ids >= first) & (ids < count)
    return mask, ids.where(mask, 0)


def blank(rows: Tensor, mask: Tensor) -> Tensor:
    """``rows`` ``[n, ...]`` with zeros where ``mask`` ``[n]`` is false, whatever was there, NaN included."""
    shape = mask.shape + (1,) * (rows.dim() - mask.dim())
    return rows.where(mask.view(shape), torch.zeros((), dtype=rows.dtype, device=rows.device))


def blank_(rows: Tensor, mask: Tensor) -> Tensor:
    """``blank`` in place, for rows that nobody else looks at."""
    return rows.masked_fill_(~mask.view(mask.shape + (1,) * (rows.dim() - mask.dim())), 0)


def as_bits(tensor: Tensor) -> Tensor:
    """One-byte floats as bytes: torch has few operations for them, and a store moves bits."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def as_words(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one dtype seen in the fewest elements, of up to 16 bytes: what moves bits costs by the element."""
    size = tensors[0].dtype.itemsize
    widest = (torch.complex128,) if tensors[0].device.type == "cpu" else ()  # not every accelerator has it
    if all(one.dim() > 1 and one.stride(-1) == 1 for one in tensors):
        numbers = []
        for one in tensors:
            numbers += [one.data_ptr(), one.shape[-1] * size, *(stride * size for stride in one.stride()[:-1])]
        together = gcd(*numbers)
        for dtype in (*widest, torch.int64, torch.int32, torch.int16):
            if size < dtype.itemsize and together % dtype.itemsize == 0:
                return tuple(one.view(dtype) for one in tensors)
    return tuple(as_bits(one) for one in tensors)


def fill(out: Tensor, result: Tensor) -> Tensor:
    """Write a result into an output that ``require_out`` passed, outside of autograd."""
    out.detach().copy_(result)
    return out


class RowStore:
    """Stores rows of one field at kernel ids of one form.

    Padding rows go to the sink as zeros, which is what the sink holds: nothing changes, and no id is left out, so the
    device is never asked how many there are.

    Attributes:
        views: by model layer id.
        key: what ``place`` depends on besides the ids.
    """

    def __init__(self, sub: SubPool, field: str, kind: FormKind) -> None:
        layout = sub.layout.field(field)
        self.kind = kind
        self.form = sub.layout.form(field, kind)
        self.row_shape = layout.row_shape
        self.first = sub.page_size
        stored = [(group, sub.view(field, group[0], kind)) for group in layout.layers]
        self.views = {one: view for group, view in stored for one in group}
        self._digits = layout.token_shape
        any_view = next(iter(self.views.values()))
        self.count = any_view.shape[0] * (1 if kind == "row" else sub.page_size)
        self.key = (self.form, self._digits, self.count)

    def index(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Indices into a view for ids that name rows of it."""
        if self.kind == "row":
            return (ids,)
        digits: list[Tensor] = []
        for size in reversed(self._digits):
            digits.insert(0, ids.remainder(size))
            ids = ids.div(size, rounding_mode="floor")
        return (ids, *digits)

    def place(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Which of the ids ``[n]`` store something, and where in a view; one answer for all stores of equal ``key``."""
        mask, safe = live(ids, self.first, self.count)
        return mask, self.index(safe)

    def store(self, layer: int, place: tuple[Tensor, tuple[Tensor, ...]], rows: Tensor) -> None:
        """Write ``rows`` ``[n, *row_shape]`` for one layer; padding ids and ids past the view store nothing.

        Autograd does not record it: the view would keep the graph of every step that ever wrote.
        """
        mask, index = place
        as_bits(self.views[layer])[index] = blank(as_bits(rows.detach()), mask)

    def load(self, layer: int, ids: Tensor) -> Tensor:
        """Read rows ``[n, *row_shape]`` for one layer; padding ids give zeros."""
        mask, safe = live(ids, self.first, self.count)
        view = self.views[layer]
        return blank_(as_bits(view)[self.index(safe)], mask).view(view.dtype)
