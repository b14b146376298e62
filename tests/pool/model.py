"""A pool in plain Python: what every operation means, in sets, dicts and opaque tags.

Nothing of the pool is imported. The model chooses no page: it is told which ids and which places the pool chose, and
refuses them if they were not free.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pool.places import Key, Places, Room

Tag = int | None
"""Contents of a token: 0 for zero bytes, -1 for poison, ``None`` where an earlier holder may have left something."""


class Refused(Exception):
    """The operation is an error of the class ``kind``, and changes nothing."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class Entry:
    """One page of a holder.

    Attributes:
        held: sub-pools in which it is held; ``None`` once it was given back.
        passed: sub-pools in which an eviction from the handle's start went past it.
    """

    v: int
    generation: int
    held: set[str] | None
    passed: set[str] = field(default_factory=set)


@dataclass
class Claim:
    """One holder: its pages, in order, and the tokens that they are meant for."""

    family: str
    names: tuple[str, ...]
    entries: list[Entry]
    tokens: int

    def ids(self) -> tuple[int, ...]:
        return tuple(entry.v for entry in self.entries)


class PoolModel:
    """Holders and contents of the pages of every sub-pool.

    Attributes:
        holders: of ``(sub-pool, virtual page)``, pins among them; absent where nobody holds it.
        pins: how many of them are pins.
        tags: of the same pages, one a token.
        fresh: the tag that a token of a new page has.
        doubtful: pages of which one of several holders freed by number, and nobody knows which.
    """

    def __init__(self, rooms: Mapping[str, Room], fresh: Tag) -> None:
        self.rooms = rooms
        self.places = Places(rooms)
        self.fresh = fresh
        self.holders: Counter[Key] = Counter()
        self.pins: Counter[Key] = Counter()
        self.places.pins = self.pins
        self.tags: dict[Key, list[Tag]] = {}
        self.generation: dict[tuple[str, int], int] = defaultdict(int)
        self.doubtful: set[tuple[str, int]] = set()
        self.families: dict[str, list[Room]] = {}
        for room in rooms.values():
            self.families.setdefault(room.family, []).append(room)

    def alloc(self, family: str, names: tuple[str, ...], tokens: int, ids: Sequence[int]) -> Claim:
        claim = Claim(family, names, [], tokens)
        self._append(claim, ids, self.pages(family, tokens))
        return claim

    def extend_needs(self, claim: Claim, tokens: int) -> tuple[int, bool]:
        """New pages, and whether the last one must become private first."""
        self.validate(claim, range(len(claim.entries))[-1:])
        more = max(0, self.pages(claim.family, claim.tokens + tokens) - len(claim.entries))
        partly = tokens > 0 and claim.tokens % self.page_size(claim.family) > 0
        return more, partly and self.is_shared(claim.entries[-1])

    def extend(self, claim: Claim, tokens: int, ids: Sequence[int]) -> None:
        more, private = self.extend_needs(claim, tokens)
        kept = len(claim.entries)
        if private:
            self.fork(claim, kept - 1, ids[kept - 1])
        assert tuple(ids[:kept]) == claim.ids()
        self._append(claim, ids[kept:], more)
        claim.tokens += tokens

    def retain(self, claim: Claim, part: range) -> Claim:
        self.validate(claim, part)
        tokens = self.tokens_of(claim, part)
        entries = claim.entries[part.start : part.stop]
        copies = [Entry(e.v, e.generation, set(e.held or ()), set(e.passed)) for e in entries]
        for entry in copies:
            self.holders.update((name, entry.v) for name in entry.held or ())
        return Claim(claim.family, claim.names, copies, tokens)

    def pin(self, claim: Claim, part: range, names: tuple[str, ...]) -> list[Key]:
        """Hold the pages of a part where they are, in those of the sub-pools in which each is held."""
        self.validate(claim, part)
        keys = [(name, claim.entries[i].v) for i in part for name in names if name in (claim.entries[i].held or ())]
        self.holders.update(keys)
        self.pins.update(keys)
        return keys

    def unpin(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.pins[key] -= 1
            if not self.pins[key]:
                del self.pins[key]
            self._drop([key])

    def owners(self, key: Key) -> int:
        """Holders that are handles."""
        return self.holders[key] - self.pins[key]

    def fork(self, claim: Claim, index: int, new: int) -> bool:
        """Make a page private; ``new`` is the page that the handle names afterwards."""
        self.validate(claim, range(index, index + 1))
        entry = claim.entries[index]
        if not self.is_shared(entry):
            return False
        held, old = set(entry.held or ()), entry.v
        self._adopt(claim.family, held, new)
        for name in held:
            self.tags[name, new] = list(self.tags[name, old])
        self._drop((name, old) for name in held)
        entry.v, entry.generation = new, self.generation[claim.family, new]
        return True

    def truncate(self, claim: Claim, tokens: int) -> None:
        if not 0 <= tokens <= claim.tokens:
            raise Refused("ArgumentError")
        keep = self.pages(claim.family, tokens)
        self.validate(claim, range(max(keep - 1, 0), len(claim.entries)))
        if tokens % self.page_size(claim.family) and claim.entries[keep - 1].held != set(claim.names):
            raise Refused("ArgumentError")
        self.free([(claim, range(keep, len(claim.entries)))])
        del claim.entries[keep:]
        claim.tokens = tokens

    def free(self, parts: Sequence[tuple[Claim, range]]) -> None:
        """Give back pages of handles, all of them or none."""
        seen: set[tuple[int, int]] = set()
        needed: Counter[Key] = Counter()
        for claim, part in parts:
            self.validate(claim, part, "DoubleFree")
            where = {(id(claim), i) for i in part}
            if where & seen:
                raise Refused("DoubleFree")
            seen |= where
            needed.update((name, claim.entries[i].v) for i in part for name in claim.entries[i].held or ())
        if any(self.owners(key) < count for key, count in needed.items()):
            raise Refused("UseAfterFree")
        self._drop(needed.elements())
        for claim, part in parts:
            for i in part:
                claim.entries[i].held = None

    def free_ids(self, family: str, ids: Sequence[int]) -> None:
        """Give back pages by number; which of its holders gives it back is not known."""
        rooms = self.families[family]
        for v in ids:
            if v == 0:
                raise Refused("SinkPage")
            if not 0 < v < self.places.virtual_pages(rooms):
                raise Refused("PageOutOfRange")
        for v, times in Counter(ids).items():
            counts = {self.owners((room.name, v)) for room in rooms} - {0}
            if times > max(counts, default=0):
                raise Refused("DoubleFree")
            if len(counts) > 1:
                raise Refused("ArgumentError")
        self._drop([(room.name, v) for v in ids for room in rooms if self.owners((room.name, v))])
        self.doubtful |= {(family, v) for v in ids if any(self.owners((room.name, v)) for room in rooms)}

    def evict(self, name: str, claim: Claim, part: range, before: int) -> int:
        """Give back pages that lie before a token of the part, in one sub-pool."""
        if not 0 <= before <= self.tokens_of(claim, part):
            raise Refused("ArgumentError")
        old = range(part.start, min(part.stop, part.start + before // self.page_size(claim.family)))
        if part.start == 0:
            old = range(sum(name in entry.passed for entry in claim.entries[: old.stop]), old.stop)
        gone = [i for i in old if claim.entries[i].held is None or name in (claim.entries[i].held or ())]
        for i in gone:
            self.validate(claim, range(i, i + 1), "DoubleFree")
        for i in gone:
            entry = claim.entries[i]
            assert entry.held is not None
            entry.held.discard(name)
            self._drop([(name, entry.v)])
            entry.v = entry.v if entry.held else 0
        if part.start == 0:
            for entry in claim.entries[: old.stop]:
                entry.passed.add(name)
        return len(gone)

    def validate(self, claim: Claim, part: range, freed: str = "UseAfterFree") -> None:
        for i in part:
            entry = claim.entries[i]
            if entry.held is None:
                raise Refused(freed)
            if entry.held and self.generation[claim.family, entry.v] != entry.generation:
                raise Refused("UseAfterFree")
        if any(not self.owners((name, claim.entries[i].v)) for i in part for name in claim.entries[i].held or ()):
            raise Refused("UseAfterFree")

    def write(self, claim: Claim, token: int, tag: int) -> None:
        """Write a token in every sub-pool; an evicted page is still written where another holder keeps it."""
        page, place = divmod(token, self.page_size(claim.family))
        for name in claim.names:
            if (name, claim.entries[page].v) in self.tags:
                self.tags[name, claim.entries[page].v][place] = tag

    def read(self, claim: Claim, name: str) -> list[Tag]:
        """Tags of all tokens; an evicted page reads zero once nobody keeps it."""
        zeros: list[Tag] = [0] * self.page_size(claim.family)
        pages = [self.tags.get((name, entry.v), zeros) for entry in claim.entries]
        return [tag for page in pages for tag in page][: claim.tokens]

    def is_shared(self, entry: Entry) -> bool:
        return any(self.holders[name, entry.v] > 1 for name in entry.held or ())

    def used(self, name: str) -> int:
        return sum(one == name for one, _ in self.tags)

    def page_size(self, family: str) -> int:
        return self.families[family][0].page_size

    def pages(self, family: str, tokens: int) -> int:
        return -(-tokens // self.page_size(family))

    def tokens_of(self, claim: Claim, part: range) -> int:
        size = self.page_size(claim.family)
        return max(0, min(claim.tokens, part.stop * size) - part.start * size)

    def _append(self, claim: Claim, ids: Sequence[int], count: int) -> None:
        assert len(ids) == count
        for v in ids:
            self._adopt(claim.family, claim.names, v)
            claim.entries.append(Entry(v, self.generation[claim.family, v], set(claim.names)))

    def _adopt(self, family: str, names: Iterable[str], v: int) -> None:
        rooms = self.families[family]
        assert 0 < v < self.places.virtual_pages(rooms)
        assert not any(self.holders[room.name, v] for room in rooms), f"page {v} was given out twice"
        for name in names:
            self.holders[name, v] = 1
            self.tags[name, v] = [self.fresh] * self.rooms[name].page_size

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self.holders[key] -= 1
            if not self.holders[key]:
                del self.holders[key], self.tags[key]
                self.places.forget(key)
                family = self.rooms[key[0]].family
                if not any(self.holders[room.name, key[1]] for room in self.families[family]):
                    self.generation[family, key[1]] += 1
                    self.doubtful.discard((family, key[1]))
