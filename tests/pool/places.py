"""Where the pages of a modelled pool lie: slabs, their owners, and what follows for the pages that can be had."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, int]
"""A sub-pool and a virtual page."""


@dataclass(frozen=True)
class Room:
    """A sub-pool.

    Attributes:
        per_slab: its pages in a slab, or all of its pages, the sink included, where it shares with nobody.
        slabs: slabs that can be handed out; 0 where it shares with nobody.
        region: names the slabs that it shares; ``None`` where it shares with nobody.
    """

    name: str
    family: str
    page_size: int
    per_slab: int
    slabs: int
    region: int | None
    direct: bool

    def slab(self, page: int) -> tuple[str, int]:
        home = self.name if self.region is None else str(self.region)
        return home, page // self.per_slab


class Places:
    """Physical pages, as learned from the pool, and the rules that they keep.

    Attributes:
        at: the physical page of each page in use.
        pins: pages that must not move.
        moves: page copies that compactions said they made since the places were learned.
        seen: how often slabs changed owners and were reused after a compaction.
    """

    def __init__(self, rooms: Mapping[str, Room]) -> None:
        self.rooms = rooms
        self.at: dict[Key, int] = {}
        self.pins: Mapping[Key, int] = {}
        self.moves = 0
        self.seen: Counter[str] = Counter()
        self._last_owner: dict[tuple[str, int], str] = {}
        self._vacated: set[tuple[str, int]] = set()
        self._slabs: dict[str, dict[int, int]] | None = None

    def forget(self, key: Key) -> None:
        self.at.pop(key, None)
        self._slabs = None

    def learn(self, at: Mapping[Key, int], *, exact: bool) -> None:
        """Take note of where all pages lie.

        Args:
            exact: all places were known when the last compaction began, so its moves can be counted.
        """
        moved = [key for key, page in self.at.items() if at[key] != page]
        assert len(moved) == self.moves if exact else len(moved) <= self.moves
        if moved:
            before = {self.rooms[name].slab(page) for (name, _), page in self.at.items()}
            self._vacated |= before - {self.rooms[name].slab(page) for (name, _), page in at.items()}
        self.moves = 0
        self.at = dict(at)
        self._slabs = None
        owners: dict[tuple[str, int], str] = {}
        for (name, v), page in at.items():
            room = self.rooms[name]
            slab = room.slab(page)
            assert page > 0 if room.region is None else slab[1] > 0, "the sink was handed out"
            assert owners.setdefault(slab, name) == name, f"{slab} has pages of two sub-pools"
            assert page == v or not room.direct
        assert len({(name, page) for (name, _), page in at.items()}) == len(at), "two pages share a place"
        for slab, name in owners.items():
            self.seen["slab changes owner"] += self._last_owner.get(slab, name) != name
            self._last_owner[slab] = name
        self.seen["reuse after compaction"] += bool(self._vacated & owners.keys())
        self._vacated -= owners.keys()

    def used_by_slab(self, name: str) -> dict[int, int]:
        """Pages in use of every slab that a sub-pool owns."""
        if self._slabs is None:
            self._slabs = {one: {} for one in self.rooms}
            for (one, _), page in self.at.items():
                slab, slabs = page // self.rooms[one].per_slab, self._slabs[one]
                slabs[slab] = slabs.get(slab, 0) + 1
        return self._slabs[name]

    def pinned_slabs(self, name: str) -> set[int]:
        """Slabs with a page that must not move."""
        return {self.at[key] // self.rooms[name].per_slab for key in self.pins if key[0] == name}

    def spare(self, room: Room) -> int:
        """Free pages that need no further slab."""
        slabs = self.used_by_slab(room.name)
        owned = room.per_slab - 1 if room.region is None else len(slabs) * room.per_slab
        return owned - sum(slabs.values())

    def free_slabs(self, region: int) -> int:
        members = [room for room in self.rooms.values() if room.region == region]
        return members[0].slabs - sum(len(self.used_by_slab(room.name)) for room in members)

    def can_take(self, names: Iterable[str], count: int) -> bool:
        """Whether each of the sub-pools can have ``count`` more pages, all at once."""
        needed: Counter[int] = Counter()
        for name in names:
            room = self.rooms[name]
            missing = count - self.spare(room)
            if missing > 0 and room.region is None:
                return False
            if missing > 0 and room.region is not None:
                needed[room.region] += -(-missing // room.per_slab)
        return all(slabs <= self.free_slabs(region) for region, slabs in needed.items())

    def available(self, name: str) -> tuple[int, int, int]:
        """Pages that can be had now, and after a compaction of everything, and the moves that this takes."""
        room = self.rooms[name]
        now = self.spare(room)
        if room.region is None:
            return now, now, 0
        now += self.free_slabs(room.region) * room.per_slab
        gained = moves = 0
        for other in self.rooms.values():
            if other.region == room.region and not other.direct:
                slabs, fixed = self.used_by_slab(other.name), self.pinned_slabs(other.name)
                movable = sorted(used for slab, used in slabs.items() if slab not in fixed)
                emptied = min(len(movable), len(slabs) - -(-sum(slabs.values()) // other.per_slab))
                moves += sum(movable[:emptied])
                gained += emptied if other.name != name else 0
        return now, now + gained * room.per_slab, moves

    def fewest_in_a_slab_of_others(self, name: str) -> int | None:
        """Pages in use of the sparsest slab without a pin, of another sub-pool of the region; ``None`` for no such."""
        region = self.rooms[name].region
        others = [room.name for room in self.rooms.values() if room.region == region and room.name != name]
        used = [
            count
            for other in others
            if region is not None
            for slab, count in self.used_by_slab(other).items()
            if slab not in self.pinned_slabs(other)
        ]
        return min(used, default=None)

    def whole_slab(self, name: str, pages: Iterable[int]) -> int:
        """How many these pages are; they must be all pages in use of one slab."""
        slabs = [self.at[name, v] // self.rooms[name].per_slab for v in pages]
        assert slabs
        assert slabs == [slabs[0]] * self.used_by_slab(name)[slabs[0]]
        return len(slabs)

    def virtual_pages(self, rooms: Sequence[Room]) -> int:
        """One past the largest virtual page: as many as could be in use at once."""
        if rooms[0].direct:
            return rooms[0].per_slab * (rooms[0].slabs + 1)
        shared = max((room.per_slab * room.slabs for room in rooms if room.region is not None), default=0)
        return 1 + shared + sum(room.per_slab - 1 for room in rooms if room.region is None)
