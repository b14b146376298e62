"""Which ids the units of a token range, or of a slot's live rows, have."""

from functools import cache

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.hookspecs import MemoryOps
from statehal.pool import Pages, SubPool
from statehal.portability.move_rows import UnitIds
from statehal.portability.placement import Units
from statehal.reference.protocol import make_protocol
from statehal.spec import ConvRecurrent


def token_units(subpool: SubPool, pages: Pages, start: int, stop: int) -> UnitIds:
    """Ids of the units of tokens ``start`` to ``stop`` of a handle, which are whole units."""
    size = subpool.page_size
    first = start // size
    physical = subpool.physical_ids(pages[first : -(-stop // size)].page_ids()).tensor

    @cache
    def ids(units: Units) -> Tensor:
        a_page = len(units.places)
        unit = size // a_page
        number = torch.arange(start // unit, stop // unit, device=physical.device) - first * a_page
        found = physical[number // a_page] * units.first
        return found if a_page == 1 else found + _places(units, physical.device)[number % a_page]

    return ids


def slot_units(subpool: SubPool, slot: Tensor, cursor: Tensor) -> UnitIds:
    """Ids of the rows of one slot: of its window and its ring from the oldest on, and of its states.

    Args:
        slot: the physical slot, int64 ``[1]``.
        cursor: of that slot, ``[1]``: says which rows are live.
    """
    spec, conv = subpool.spec, subpool.layout.conv
    assert isinstance(spec, ConvRecurrent)
    assert conv is not None
    rows = {
        "window": make_protocol(conv, spec.width, spec.window_rows).live(cursor)[0].long(),
        "replay": (cursor + torch.arange(spec.window_rows, device=slot.device)) % spec.window_rows,
        "state": torch.zeros_like(slot),
    }

    @cache
    def ids(units: Units) -> Tensor:
        return slot * units.first + _places(units, slot.device)[rows[units.rows]]

    return ids


def live_units(memory: MemoryOps, subpool: SubPool, pages: Pages, where: str) -> UnitIds:
    """Ids of the live rows of the slot of a handle, by its own cursor, which is read on the device.

    Raises:
        StepError: checking is on, and the slot is between an operation and its commit.
    """
    slot = subpool.physical_ids(pages.page_ids()).tensor
    if subpool.pool.checking:
        subpool.step_books.require_closed(f"{where} of {subpool.name!r}", "pages name", slot.cpu())
    cursor = memory.gather(subpool.view("cursor", subpool.spec.layers[0], "page"), slot)
    return slot_units(subpool, slot, cursor.reshape(1).long())


def require_held(subpool: SubPool, pages: Pages, start: int, stop: int) -> None:
    """Refuse tokens that a handle does not hold in a sub-pool: the sink's zeros would be read in their place.

    Raises:
        ArgumentError: the range leaves the handle, or a page of it was evicted from this sub-pool or freed.
    """
    if not isinstance(pages, Pages) or not 0 <= start < stop <= pages.tokens:
        what = f"the handle holds {pages.tokens} tokens" if isinstance(pages, Pages) else "pages are no handle"
        raise ArgumentError(f"tokens {start} to {stop} of {subpool.name!r}: {what}")
    size, lease, first = subpool.page_size, pages.lease, pages.bounds.start
    for index in range(start // size, -(-stop // size)):
        held = lease.held[first + index]
        if held <= 0 or not held & subpool.member.bit:
            raise ArgumentError(
                f"tokens {start} to {stop} of {subpool.name!r}: the page of token {index * size} was evicted or freed"
            )


def _places(units: Units, device: torch.device) -> Tensor:
    """What each place in a page adds to an id."""
    return torch.tensor([place // units.step for place in units.places], dtype=torch.int64, device=device)
