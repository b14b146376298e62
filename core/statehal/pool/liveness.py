"""Holding raw ids against the accounts, where checking is on; every function here syncs the device."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from statehal.errors import WrongIdSpace
from statehal.ids import SpaceKey

if TYPE_CHECKING:
    from statehal.pool.subpool import SubPool


def places(sub: "SubPool", key: SpaceKey, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The page, and the place in it, that each id names as an id of ``sub`` of the key's kind and unit.

    Returns:
        Both ``[tensors, *shape]``, int64 on the host; ids that are padding have page and place -1.
    """
    size = sub.page_size if key.unit == "tokens" else 1
    steps = sub.multipliers(key.unit) if key.kind == "kernel" else (size,)
    ids = torch.stack([tensor.detach().cpu().long() for tensor in tensors])
    step = torch.tensor(steps, dtype=torch.int64, device="cpu").view(-1, *(1 for _ in tensors[0].shape))
    padding = ids < size
    return (
        ids.div(step, rounding_mode="floor").masked_fill_(padding, -1),
        ids.remainder(step).masked_fill_(padding, -1),
    )


def live_mask(sub: "SubPool", key: SpaceKey, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Which ids, read as ids of ``sub``, are padding or name a page in use: ``[tensors, *shape]``."""
    table = sub.member.table if key.kind == "virtual" else sub.member.virtual
    live = torch.tensor(table, device="cpu").bool()
    page, place = places(sub, key, tensors)
    size = sub.page_size if key.unit == "tokens" else 1
    return (page < 0) | ((page < len(table)) & (place < size) & live[page.clamp(0, len(table) - 1)])


def require_live(subpools: Iterable["SubPool"], key: SpaceKey, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse ids that name no page in use in the space that they were declared of, or not one token in all forms.

    Raises:
        WrongIdSpace: with the ids, and the sub-pools in which all of them would be live.
    """
    subpools = list(subpools)
    owners = [sub for sub in subpools if key.owner == (sub.family.name if key.kind == "virtual" else sub.name)]
    mask = torch.stack([live_mask(sub, key, tensors) for sub in owners]).any(0)
    if bool(mask.all()):
        require_one_token(owners[0], key, tensors)
        return
    ids, live = next((ids, live) for ids, live in zip(tensors, mask, strict=True) if not bool(live.all()))
    wrong = ids.detach().cpu()[~live].flatten()[:8].tolist()
    others = [sub for sub in subpools if sub not in owners and (key.kind != "kernel" or len(sub.forms) == len(tensors))]
    elsewhere = [repr(sub.name) for sub in others if bool(live_mask(sub, key, tensors).all())]
    hint = f"; all of them would be live in {', '.join(elsewhere)}" if elsewhere else ""
    raise WrongIdSpace(
        f"ids {wrong} were declared {key} but name no page in use there{hint} "
        f"(fix: pool[{owners[0].name!r}].kernel_ids(virtual))"
    )


def require_one_token(sub: "SubPool", key: SpaceKey, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse ids of several forms of which one names another token than the rest, or is padding alone.

    Raises:
        WrongIdSpace: with the first such ids, each with those of all forms.
    """
    page, place = places(sub, key, tensors)
    differ = ((page != page[:1]) | (place != place[:1])).any(0)
    if bool(differ.any()):
        wrong = list(zip(*(ids.detach().cpu()[differ].tolist()[:8] for ids in tensors), strict=True))
        raise WrongIdSpace(
            f"ids {wrong} were declared {key} but the forms name different {key.unit}, so a token's fields would be "
            f"parts of several (fix: pass the tensors of one kernel_ids() call, cut alike)"
        )


def require_allotted(sub: "SubPool", unit: str, ids: torch.Tensor) -> None:
    """Refuse virtual ids of pages that nobody but a pin holds, or that were never allocated in this sub-pool.

    Ids of an evicted page pass: they translate to the sink, as intended.

    Raises:
        WrongIdSpace: with the ids.
    """
    family, size = sub.family, sub.page_size if unit == "tokens" else 1
    refs = zip(*(member.refs for member in family.members), strict=True)
    held = torch.tensor([any(counts) for counts in refs], device="cpu")
    for v in {v for member in family.members for v in member.pins}:
        held[v] = any(member.is_held(v) for member in family.members)
    allotted = torch.tensor(family.allotted, device="cpu").bitwise_and(sub.member.bit).bool()
    pages = ids.detach().cpu().long().div(size, rounding_mode="floor")
    real = (pages > 0) & (pages < family.num_virtual)
    bad = real & ~(held & allotted)[pages.clamp(0, family.num_virtual - 1)]
    if bool(bad.any()):
        wrong = sorted(set(pages[bad].tolist()))[:8]
        raise WrongIdSpace(
            f"kernel_ids of {sub.name!r}: nobody holds pages {wrong} there, so what is written to them would be lost "
            f"(fix: allocate them in {sub.name!r}, and translate only ids of handles that are still held)"
        )
