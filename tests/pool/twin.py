"""A pool and its model side by side: every operation goes to both, and both must agree."""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from hypothesis import event

from pool.codec import Codec
from pool.model import Claim, PoolModel, Refused, Tag
from pool.places import Key, Room
from statehal import Binding
from statehal.errors import PoolExhausted, StatehalError
from statehal.ids import KernelIds, Unit
from statehal.pool import Pages, Pin, PoolPlan
from statehal.pool.member import Hygiene

FRESH: dict[Hygiene, Tag] = {"zero": 0, "none": None, "poison": -1}


class Twin:
    """Both pools, and the handles that are held in both.

    Attributes:
        live: handles, each with its claim.
        dead: a few handles that were given back.
        pins: pins, each with the pages that it holds and where they lay then.
        eager: settle after every operation; else work gathers until something asks for it.
        seen: how often each thing happened, over all runs.
    """

    def __init__(self, hal: Binding, plan: PoolPlan, hygiene: Hygiene, eager: bool, seen: Counter[str]) -> None:
        self.pool = hal.allocate(plan, hygiene=hygiene)
        self.codecs = {name: Codec(self.pool[name]) for name in self.pool}
        self.model = PoolModel(rooms_of(plan), FRESH[hygiene])
        self.live: list[tuple[Pages, Claim]] = []
        self.dead: list[tuple[Pages, Claim]] = []
        self.pins: list[tuple[Pin, dict[Key, int], list[Key]]] = []
        self.eager = eager
        self.seen = seen
        self.settled = True
        self.compared = True
        self.exact = True  # the places of all pages were known when the last compaction began
        self.tag = 0
        self.owner_of_tag: dict[Tag, tuple[str, ...]] = {}

    def saw(self, what: str) -> None:
        self.seen[what] += 1
        event(what)

    def act(
        self,
        call: Callable[[], Any],
        mirror: Callable[[Any], Any],
        needs: Callable[[], tuple[Iterable[str], int]] = lambda: ((), 0),
    ) -> bool:
        """Do one operation on both; where the pool refuses it, the model must too, and nothing may have changed.

        Args:
            call: the operation on the pool.
            mirror: the same on the model, given what ``call`` returned.
            needs: sub-pools and pages that it takes, asked where the pool is exhausted.
        """
        self.compared = False
        try:
            result = call()
        except PoolExhausted as error:
            self.settle()
            assert not self.model.places.can_take(*needs()), f"the pages can be had: {error}"
            self.saw("exhausted")
            return False
        except StatehalError as error:
            try:
                mirror(None)
            except Refused as refused:
                assert type(error).__name__ == refused.kind, f"expected {refused.kind}, got {error!r}"
                self.saw(f"refused: {refused.kind}")
            else:
                raise AssertionError("the model sees nothing wrong") from error
            return False
        self.settled = False
        self.exact = self.exact and not self.model.places.moves
        mirror(result)
        return True

    def refuse(self, kind: str, call: Callable[[], Any]) -> None:
        """Misuse that the model does not know: an error of that class, and nothing changes."""

        def refused(_: Any) -> None:
            raise Refused(kind)

        self.act(call, refused)

    def compare(self) -> None:
        """What the host can see agrees; in an eager twin also all bytes."""
        for pages, claim in self.live:
            assert pages.ids == claim.ids()
            assert pages.tokens == claim.tokens
        for name in self.codecs:
            assert self.pool[name].used_pages == self.model.used(name)
        if self.eager and not self.compared:
            self.settle()

    def settle(self, *, drained: bool = False) -> None:
        """Let the device catch up, and compare every byte of every page in use."""
        if drained:
            self.pool.run(self.pool.drain_work())
        self.pool.check()
        model = self.model
        places: dict[Key, int] = {}
        for name, codec in self.codecs.items():
            live = [v for one, v in model.tags if one == name]
            space = self.pool[name].space("virtual", "pages")
            ids = self.pool[name].kernel_ids(space.assume(torch.tensor(live, dtype=torch.int64)))
            places.update(zip([(name, v) for v in live], codec.pages(ids), strict=True))
        model.places.learn(places, exact=self.exact)
        for pin, lay, _ in self.pins:
            assert lay == {key: places[key] for key in lay}, f"{pin} did not keep its pages where they were"
        self.settled = self.exact = True
        buffer = ctypes.string_at(self.pool.buffer.data_ptr(), self.pool.buffer.numel())
        spans: list[tuple[int, int]] = []
        for key, tags in model.tags.items():
            codec, page = self.codecs[key[0]], places[key]
            if None in tags:
                self._adopt(key, tags, codec.find(buffer, page))
            assert codec.holds(buffer, page, tags), f"{key} in page {page}: {codec.find(buffer, page)}, not {tags}"
            spans += codec.ranges(page)
        for name, codec in self.codecs.items():
            assert codec.holds(buffer, 0, [0] * codec.page_size), f"the sink of {name} was written to"
            have = self.pool.available(name)
            assert (have.pages, have.after_compaction, have.moves) == model.places.available(name)
            assert have.cheapest is None or have.cheapest[0] != name
            fewest = model.places.fewest_in_a_slab_of_others(name)
            assert fewest == (None if have.cheapest is None else model.places.whole_slab(*have.cheapest))
        self.compared = True
        spans.sort()
        assert all(start + size <= after for (start, size), (after, _) in pairwise(spans))

    def write(self, pages: Pages, claim: Claim, start: int, stop: int) -> None:
        """Write new tags to tokens of a handle, in every sub-pool."""
        tags = list(range(self.tag + 1, self.tag + 1 + stop - start))
        self.tag += len(tags)
        self.owner_of_tag.update(dict.fromkeys(tags, claim.names))
        self.compared = False
        virtual = pages.token_ids(start, stop)
        for name in claim.names:
            self.codecs[name].write(self.pool[name].kernel_ids(virtual), tags)
        for token, tag in zip(range(start, stop), tags, strict=True):
            self.model.write(claim, token, tag)

    def read(self, pages: Pages, claim: Claim) -> None:
        """Read a handle as a kernel does: the holder's own tags."""
        self.settle()
        virtual = pages.token_ids()
        for name in claim.names:
            expected = self.model.read(claim, name)
            self.codecs[name].require(self.pool[name].kernel_ids(virtual), expected)

    def pin(self, pages: Pages, claim: Claim, part: range, names: tuple[str, ...] | None) -> bool:
        """Hold pages where they are."""
        self.settle()

        def mirror(pin: Pin | None) -> None:
            keys = self.model.pin(claim, part, names or claim.names)
            assert pin is not None
            self.pins.append((pin, {key: self.model.places.at[key] for key in keys}, keys))

        return self.act(lambda: self.pool.pin(pages, names), mirror)

    def unpin(self, chosen: list[int]) -> None:
        """Give back pins, which kept their pages where they were until now."""
        self.settle()
        gone = [self.pins[one] for one in chosen]
        pins = [pin for pin, _, _ in gone]
        self.act(
            lambda: self.pool.unpin(pins if len(pins) > 1 else pins[0]),
            lambda _: self.model.unpin(key for _, _, keys in gone for key in keys),
        )
        self.pins = [one for one in self.pins if one not in gone]
        self.refuse("DoubleFree", lambda: self.pool.unpin(pins))

    def usable(self, claim: Claim) -> bool:
        """Whether a handle may be read and written: none of its pages was given back."""
        try:
            self.model.validate(claim, range(len(claim.entries)))
        except Refused:
            return False
        return True

    def translate(self, name: str, unit: Unit, dtype: torch.dtype, number: int) -> KernelIds:
        """Kernel ids of pages in use, of unmapped ones, and of numbers that are no ids at all."""
        self.settle()
        subpool, codec, model = self.pool[name], self.codecs[name], self.model
        step = codec.page_size if unit == "tokens" else 1
        end = step * model.places.virtual_pages(model.families[model.rooms[name].family])
        live = [v * step + number % step for one, v in model.tags if one == name]
        ids = [*live, -1, -step, 0, step - 1, number, end - 1]
        if not model.rooms[name].direct:
            ids += [end, end + number, 2**31 - 1]
        virtual = subpool.space("virtual", unit).assume(torch.tensor(ids, dtype=dtype))
        out = subpool.kernel_buffer(len(ids), unit=unit, dtype=dtype) if number % 3 else None
        made = subpool.kernel_ids(virtual, out)
        assert out is None or made is out
        for form in codec.forms.values():
            pages, places = codec.split(made.of(form).tolist(), form, unit)
            for one, page, place in zip(ids, pages, places, strict=True):
                known = model.places.at.get((name, one // step), one // step if model.rooms[name].direct else 0)
                assert (page, place) == (max(known, 0), one % step), f"{unit} {one} of {name}"
        return made

    def bury(self, picked: list[tuple[Pages, Claim]]) -> None:
        """Handles that were given back live no more."""
        gone = [claim for _, claim in picked if claim.entries]
        dead = [one for one in picked if all(entry.held is None for entry in one[1].entries)]
        self.dead = [*self.dead, *(one for one in dead if one[1].entries)][-2:]
        self.live = [one for one in self.live if not any(one[1] is claim for claim in gone)]

    def give_up(self, pages: Pages, claim: Claim) -> None:
        """Give back whatever a handle still holds, page by page."""
        for part in (range(i, i + 1) for i in range(len(claim.entries))):
            page = pages[part.start]
            self.act(partial(self.pool.free, page), partial(self._free_in_model, claim, part))
        self.bury([(pages, claim)])

    def _free_in_model(self, claim: Claim, part: range, _: Any) -> None:
        self.model.free([(claim, part)])

    def finish(self) -> None:
        """Give everything back: nothing may be lost, and every sub-pool can have all of its pages."""
        self.settle()
        self.eager = False
        for _ in range(len(self.pins)):
            self.unpin([0])
        for pages, claim in self.live:
            self.give_up(pages, claim)
        self.seen.update(self.model.places.seen)
        if not self._free_doubtful():
            self.settle()
            return
        for name, room in self.model.rooms.items():
            most = room.per_slab * room.slabs if room.region is not None else room.per_slab - 1
            pages = self.pool.alloc(most * room.page_size, name)
            assert len(set(pages.ids)) == most == self.pool[name].used_pages
            self.pool.check()
            self.pool.free(pages)
        self.pool.check()

    def _free_doubtful(self) -> bool:
        """Free by number what no handle can give back, because numbers were freed that several handles held.

        Returns whether that was possible: it is not where sub-pools count different numbers of holders.
        """
        left = {(self.model.rooms[name].family, v) for name, v in self.model.tags}
        assert left <= self.model.doubtful, f"nobody holds {left - self.model.doubtful}, and they are not free"
        for family, v in sorted(left):
            name = self.model.families[family][0].name
            ids = [v] * max(self.model.holders[room.name, v] for room in self.model.families[family])
            self.act(partial(self.pool[name].free, ids), partial(self._free_ids_in_model, family, ids))
        return not self.model.tags

    def _free_ids_in_model(self, family: str, ids: list[int], _: Any) -> None:
        self.model.free_ids(family, ids)

    def _adopt(self, key: Key, tags: list[Tag], found: list[Tag]) -> None:
        """Pages that are not cleaned show zeros, or what the same sub-pool left in them."""
        for i, tag in enumerate(found):
            if tags[i] is None:
                assert tag == 0 or key[0] in self.owner_of_tag[tag], f"{key} shows bytes of another sub-pool"
                self.seen["leftovers in a page that is not cleaned"] += tag != 0
                tags[i] = tag


def rooms_of(plan: PoolPlan) -> dict[str, Room]:
    """The sub-pools of a plan as the model knows them."""
    rooms = {}
    for name, sub in plan.subpools.items():
        direct, region = sub.spec.ids == "direct", sub.region
        family = name if direct else sub.spec.kind
        slabs = region.num_slabs - 1 if region.shared else 0
        home = region.offset if region.shared else None
        rooms[name] = Room(name, family, sub.layout.page_size, sub.pages_per_slab, slabs, home, direct)
    return rooms
