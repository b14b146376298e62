"""Pins: pages that a copy reads or fills while their holders go on."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from statehal.errors import ArgumentError, DoubleFree, ForeignPages
from statehal.pool.member import Member
from statehal.pool.pages import Pages

if TYPE_CHECKING:
    from statehal.pool.family import Family


class Pin:
    """One holder of pages that stay where they are and what they are; ``StatePool.unpin`` gives it back.

    Attributes:
        pages: of each member of the family that is pinned, its virtual pages; evicted ones are left out.
    """

    __slots__ = ("family", "pages")

    def __init__(self, family: "Family", pages: tuple[tuple[Member, tuple[int, ...]], ...]) -> None:
        self.family = family
        self.pages = pages

    def __repr__(self) -> str:
        return f"Pin({self.family.name}: { ({member.name: list(ids) for member, ids in self.pages}) })"


def pin(family: "Family", pages: Pages, parts: Iterable[range], members: Sequence[Member] | None) -> list[Pin]:
    """Add a holder to each of the parts, in those of the members in which each page is held; ``None``: in all."""
    lease, bounds = pages.lease, pages.bounds
    if members is None:
        members = [member for member in family.members if lease.mask & member.bit]
    foreign = [one.name for one in members if one not in family.members or not lease.mask & one.bit]
    if foreign:
        raise ForeignPages(f"a handle of {family.name!r} has no pages in {foreign} to pin")
    parts = [_require_part(part) for part in parts]  # all of them, before the first page is pinned
    family.validate(pages)
    made = []
    for part in parts:
        part = bounds[part.start : part.stop]
        ids, masks = lease.ids[part.start : part.stop], lease.held[part.start : part.stop]
        chosen = []
        for member in members:
            bit = member.bit
            mine = tuple([v for v, held in zip(ids, masks, strict=True) if held & bit])
            member.pin(mine)
            chosen.append((member, mine))
        made.append(Pin(family, tuple(chosen)))
    family.pins.update(made)
    return made


def _require_part(value: object) -> range:
    if not isinstance(value, range) or value.step != 1 or value.start < 0:
        raise ArgumentError(f"a part of pages to pin is {value!r}: expected a range of page indices, in steps of 1")
    return value


def unpin(one: Pin) -> None:
    """Give the holder back."""
    one.family.pins.remove(one)
    for member, ids in one.pages:
        member.unpin(ids)
    one.family.retire(dict.fromkeys(v for _, ids in one.pages for v in ids))


def require_once(pins: Sequence[Pin]) -> None:
    """Refuse pins of which one is there twice, or was given back."""
    seen: set[Pin] = set()
    for one in pins:
        if one not in one.family.pins or one in seen:
            raise DoubleFree(f"{one} was given back already (fix: unpin each pin once)")
        seen.add(one)


def require_pin(value: object) -> Pin:
    """``value``, which must be a pin.

    Raises:
        ArgumentError: it is something else.
    """
    if not isinstance(value, Pin):
        raise ArgumentError(f"unpin takes what pool.pin() returned: got a {type(value).__name__}")
    return value
