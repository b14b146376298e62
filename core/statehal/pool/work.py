"""Work for the device: zeroings, copies and page-table updates, in batches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

WorkKind = Literal["zero", "poison", "copy", "table"]


@dataclass(frozen=True)
class WorkItem:
    """One batch of device work whose elements are independent of each other.

    | kind   | ``first``                       | ``second``                     |
    |--------|---------------------------------|--------------------------------|
    | zero   | physical pages to zero          | ``None``                       |
    | poison | physical pages to fill with NaN | ``None``                       |
    | copy   | physical source pages           | physical destination pages     |
    | table  | virtual pages                   | their physical pages; 0 unmaps |

    Ids are int64 ``[n]``, parts of one tensor; items are run in order.
    """

    kind: WorkKind
    subpool: str
    first: "torch.Tensor"
    second: "torch.Tensor | None" = None
