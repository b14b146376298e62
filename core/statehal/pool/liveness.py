"""Holding raw ids against the accounts, where checking is on; every function here syncs the device."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from statehal.errors import PoolCorrupt, WrongIdSpace
from statehal.ids import SpaceKey

if TYPE_CHECKING:
    from statehal.pool.subpool import SubPool


def live_mask(sub: "SubPool", key: SpaceKey, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Which ids, read as ids of ``sub`` of the key's kind and unit, are padding or name a page in use."""
    places = sub.page_size if key.unit == "tokens" else 1
    table = sub.member.table if key.kind == "virtual" else sub.member.virtual
    steps = sub.multipliers(key.unit) if key.kind == "kernel" else (places,)
    live = torch.tensor(table).bool()
    result = torch.ones(tensors[0].shape, dtype=torch.bool)
    for ids, step in zip(tensors, steps, strict=True):
        ids = ids.detach().cpu().long()
        page, place = ids.div(step, rounding_mode="floor"), ids.remainder(step)
        known = (page < len(table)) & (place < places) & live[page.clamp(0, len(table) - 1)]
        result &= (ids < places) | known
    return result


def require_live(subpools: Iterable["SubPool"], key: SpaceKey, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse ids that name no page in use in the space that they were declared of.

    Raises:
        WrongIdSpace: with the ids, and the sub-pools in which all of them would be live.
    """
    subpools = list(subpools)
    owners = [sub for sub in subpools if key.owner == (sub.family.name if key.kind == "virtual" else sub.name)]
    mask = torch.stack([live_mask(sub, key, tensors) for sub in owners]).any(0)
    if bool(mask.all()):
        return
    wrong = tensors[0].detach().cpu()[~mask].flatten()[:8].tolist()
    others = [sub for sub in subpools if sub not in owners and (key.kind != "kernel" or len(sub.forms) == len(tensors))]
    elsewhere = [repr(sub.name) for sub in others if bool(live_mask(sub, key, tensors).all())]
    hint = f"; all of them would be live in {', '.join(elsewhere)}" if elsewhere else ""
    raise WrongIdSpace(
        f"ids {wrong} were declared {key} but name no page in use there{hint} "
        f"(fix: pool[{owners[0].name!r}].kernel_ids(virtual))"
    )


def require_allotted(sub: "SubPool", unit: str, ids: torch.Tensor) -> None:
    """Refuse virtual ids of pages that nobody holds, or that were never allocated in this sub-pool.

    Ids of an evicted page pass: they translate to the sink, as intended.

    Raises:
        WrongIdSpace: with the ids.
    """
    family, size = sub.family, sub.page_size if unit == "tokens" else 1
    held = torch.tensor([any(refs) for refs in zip(*(member.refs for member in family.members), strict=True)])
    allotted = torch.tensor(family.allotted).bitwise_and(sub.member.bit).bool()
    pages = ids.detach().cpu().long().div(size, rounding_mode="floor")
    real = (pages > 0) & (pages < family.num_virtual)
    bad = real & ~(held & allotted)[pages.clamp(0, family.num_virtual - 1)]
    if bool(bad.any()):
        wrong = sorted(set(pages[bad].tolist()))[:8]
        raise WrongIdSpace(
            f"kernel_ids of {sub.name!r}: nobody holds pages {wrong} there, so what is written to them would be lost "
            f"(fix: allocate them in {sub.name!r}, and translate only ids of handles that are still held)"
        )


def check_sink(sub: "SubPool") -> None:
    """Refuse a sink page that is not zero.

    Raises:
        PoolCorrupt: naming the sub-pool.
    """
    if any(bool(view[:, 0].any()) for view in sub.page_views):
        raise PoolCorrupt(f"page 0 of {sub.name!r}, the sink, was written to")
