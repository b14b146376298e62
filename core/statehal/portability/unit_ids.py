"""Which ids the units of a token range, or of a slot's live rows, have."""

from functools import cache

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.hookspecs import MemoryOps
from statehal.ids import VirtualIds
from statehal.pool import Pages, SubPool
from statehal.portability.move_rows import UnitIds
from statehal.portability.placement import Units
from statehal.reference.protocol import make_protocol
from statehal.spec import ConvRecurrent


def token_units(subpool: SubPool, pages: Pages, start: int, stop: int) -> UnitIds:
    """Ids of the units of tokens ``start`` to ``stop`` of a handle, which are whole units."""
    return units_of_pages(page_numbers(subpool, pages, start, stop), subpool.page_size, start, stop)


def page_ids(pages: Pages, size: int, start: int, stop: int) -> VirtualIds:
    """Virtual pages of tokens ``start`` to ``stop`` of a handle, of ``size`` tokens each."""
    return pages[start // size : -(-stop // size)].page_ids()


def page_numbers(subpool: SubPool, pages: Pages, start: int, stop: int, ids: VirtualIds | None = None) -> Tensor:
    """Physical pages of tokens ``start`` to ``stop`` of a handle, from that of ``start`` on: int64 ``[n]``.

    Args:
        ids: their ``page_ids``, where they are known.
    """
    return subpool.physical_ids(page_ids(pages, subpool.page_size, start, stop) if ids is None else ids).tensor


def units_of_pages(physical: Tensor, size: int, start: int, stop: int) -> UnitIds:
    """Ids of the units of tokens ``start`` to ``stop``, which are whole units.

    Args:
        physical: pages, from that of ``start`` on.
        size: tokens of a page.
    """
    first = start // size

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
    slot = page_numbers(subpool, pages, 0, 1)
    return slot_units(subpool, slot, live_cursor(memory, subpool, slot, where))


def live_cursor(memory: MemoryOps, subpool: SubPool, slot: Tensor, where: str) -> Tensor:
    """The cursor of a physical slot that is to be read: both ``[1]``. Errors as of ``live_units``."""
    if subpool.pool.checking:
        subpool.step_books.require_closed(f"{where} of {subpool.name!r}", "pages name", slot.cpu())
    cursor = memory.gather(subpool.view("cursor", subpool.spec.layers[0], "page"), slot)
    return cursor.reshape(1).long()


def require_held(subpool: SubPool, pages: Pages, start: int, stop: int) -> None:
    """Refuse tokens that a handle does not hold in a sub-pool: the sink's zeros would be read in their place.

    Raises:
        ArgumentError: the range leaves the handle, or a page of it was evicted from this sub-pool or freed.
    """
    require_within(subpool, pages, start, stop)
    missing = first_missing(subpool, pages, start, stop)
    if missing is not None:
        raise ArgumentError(
            f"tokens {start} to {stop} of {subpool.name!r}: the page of token {missing} was evicted or freed"
        )


def require_within(subpool: SubPool, pages: Pages, start: int, stop: int) -> None:
    """Refuse tokens past those of a handle.

    Raises:
        ArgumentError: the range leaves the handle.
    """
    if not isinstance(pages, Pages) or not 0 <= start < stop <= pages.tokens:
        what = f"the handle holds {pages.tokens} tokens" if isinstance(pages, Pages) else "pages are no handle"
        raise ArgumentError(f"tokens {start} to {stop} of {subpool.name!r}: {what}")


def first_missing(subpool: SubPool, pages: Pages, start: int, stop: int) -> int | None:
    """The first token of the first page, of those of the range, that was evicted from the sub-pool or freed."""
    size, bit, held, first = subpool.page_size, subpool.member.bit, pages.lease.held, pages.bounds.start
    for index in range(start // size, -(-stop // size)):
        mask = held[first + index]
        if mask <= 0 or not mask & bit:
            return index * size
    return None


def _places(units: Units, device: torch.device) -> Tensor:
    """What each place in a page adds to an id."""
    return torch.tensor([place // units.step for place in units.places], dtype=torch.int64, device=device)
