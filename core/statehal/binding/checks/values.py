"""Looking at the values of index tensors; everything here syncs the device. What is returned is on the host."""

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.ids import KernelIds
from statehal.layout import AddressForm
from statehal.pool import SubPool


def host(tensor: object, *shape: int) -> Tensor | None:
    """Integers or truth values as int64; ``None`` for what is no such tensor of that shape, which providers refuse."""
    if not isinstance(tensor, Tensor) or tensor.is_floating_point() or tensor.is_complex():
        return None
    return tensor.detach().cpu().long() if tuple(tensor.shape) == shape else None


def numbers(start: int, end: int) -> Tensor:
    """``start`` to ``end - 1``."""
    return torch.arange(start, end, device="cpu")


def slots_of(sub: SubPool, where: str, ids: KernelIds, read: Tensor | None = None) -> Tensor:
    """Physical slots, 0 for padding, in the shape of ``ids``.

    Args:
        read: which ids are looked at, in the same shape; the others count as padding.

    Raises:
        WrongIdSpace: they are not kernel ids of this sub-pool's slots, or name a slot that nobody holds.
        StaleIds: a compaction came in between.
    """
    space = sub.space("kernel", "pages")
    tensors = tuple(tensor.detach().cpu() for tensor in space.accept(ids, where))
    if read is not None and read.shape == ids.shape:
        tensors = tuple(tensor.where(read, 0) for tensor in tensors)
    sub.pool.verify(space.key, tensors)
    pages = tensors[sub.forms.index(AddressForm("page", 1))].long()
    return pages.where((pages > 0) & (pages < sub.layout.num_pages), 0)


def require_distinct(where: str, name: str, slots: Tensor, unit: str = "slot") -> None:
    """Refuse ids of which one is named twice; padding (0) does not count."""
    found, times = slots[slots > 0].unique(return_counts=True)
    if bool((times > 1).any()):
        raise ArgumentError(f"{where}: {name} name {unit} {int(found[times > 1][0])} twice: expected each once")


def require_apart(where: str, name: str, slots: Tensor, other: str, others: Tensor) -> None:
    """Refuse slots that ``others`` name, too."""
    shared = (slots > 0) & torch.isin(slots, others)
    if bool(shared.any()):
        raise ArgumentError(f"{where}: {name} name slot {int(slots[shared][0])}, which is one of the {other}")


def require_unpinned(where: str, sub: SubPool, slots: Tensor) -> None:
    """Refuse to write slots that a copy reads or fills."""
    pinned = [sub.member.table[v] for v in sub.member.pins]
    bad = torch.isin(slots, torch.tensor(pinned, dtype=torch.int64, device="cpu"))
    if bool(bad.any()):
        raise ArgumentError(
            f"{where}: slot {int(slots[bad][0])} is pinned, because a copy reads or fills it (fix: pool.fork(handle) "
            f"before it is written, and translate its ids again; or wait for the copy)"
        )


def require_between(where: str, name: str, values: Tensor, low: Tensor | int, high: Tensor | int, mask: Tensor) -> None:
    """Refuse values outside ``low .. high``, ends included, where ``mask``."""
    bad = ((values < low) | (values > high)) & mask
    if bool(bad.any()):
        at = tuple(bad.nonzero()[0].tolist())
        low, high = (int(torch.as_tensor(bound, device="cpu").expand(bad.shape)[at]) for bound in (low, high))
        place = ", ".join(str(index) for index in at)
        raise ArgumentError(f"{where}: {name}[{place}] is {int(values[at])}: expected {low} to {high}")
