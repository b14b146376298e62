"""Reading a field by head: one gather gives the tensor that attention takes, without a transposed copy."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import torch

from statehal.errors import LayoutError, Unsupported
from statehal.layout import AddressForm

if TYPE_CHECKING:
    from statehal.ids import KernelIds
    from statehal.pool import SubPool


@dataclass(frozen=True)
class HeadSteps:
    """How head rows are numbered: head ``h`` of the token with row id ``i`` is ``i*token_step + h*head_step``."""

    form: AddressForm
    heads: int
    token_step: int
    head_step: int

    def ids(self, kernel: "KernelIds") -> torch.Tensor:
        """Ids of head rows, ``[batch*heads*tokens]`` in that order, from kernel ids of tokens ``[batch, tokens]``."""
        tokens = kernel.of(self.form).to(torch.int64)
        heads = torch.arange(self.heads, device=tokens.device) * self.head_step
        return (tokens[:, None, :] * self.token_step + heads[None, :, None]).reshape(-1)


@dataclass(frozen=True)
class HeadRows:
    """The rows of one field, a head at a time.

    Attributes:
        steps: fields with equal steps share their ids.
        dim: width of a head.
        views: by model layer id ``[head rows, dim]``; overlapping where heads lie further apart than tokens. Read only.
    """

    steps: HeadSteps
    dim: int
    views: Mapping[int, torch.Tensor]


def head_rows(subpool: "SubPool", field: str) -> HeadRows:
    """The head rows of a field ``[heads, dim]``, views of every layer of the sub-pool included.

    Raises:
        Unsupported: the backend's layout has no row form in use, or the elements of a head are not neighbours.
    """
    layout = subpool.layout
    if "row" not in layout.kinds(field):
        raise Unsupported(
            f"field {field!r} of {subpool.name!r} is laid out with forms {layout.kinds(field)}: the pooled cache reads "
            f"rows (fix: choose a backend whose layout uses the row form)"
        )
    views: dict[int, torch.Tensor] = {}
    steps = None
    for layer in subpool.spec.layers:
        rows = subpool.view(field, layer, "row")
        count, heads, dim = rows.shape
        token_stride, head_stride, step = rows.stride()
        if step != 1:
            raise Unsupported(
                f"field {field!r} of {subpool.name!r} has elements {step} apart: the pooled cache reads whole heads"
            )
        unit = gcd(token_stride, head_stride)
        steps = HeadSteps(layout.form(field, "row"), heads, token_stride // unit, head_stride // unit)
        last = (count - 1) * steps.token_step + (heads - 1) * steps.head_step
        views[layer] = rows.as_strided((last + 1, dim), (unit, 1))
    if steps is None:
        raise LayoutError(f"sub-pool {subpool.name!r} has no layers")
    return HeadRows(steps, dim, views)
