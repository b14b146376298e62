"""Random operations on a pool and its model, as a Hypothesis state machine."""

from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pool.misuse import MISUSES, binding
from pool.model import Claim
from pool.shapes import Shape
from pool.stops import Stop
from pool.twin import Twin
from statehal.errors import StaleIds
from statehal.ids import KernelIds
from statehal.pool import Pages
from statehal.pool.member import Hygiene

HYGIENES: tuple[Hygiene, ...] = ("zero", "none", "poison")
DTYPES = (torch.int64, torch.int32)
NEWEST = 17
which = st.integers(0, 15)
amount = st.integers(0, 40)
held = precondition(lambda self: self.twin.live)


class PoolMachine(RuleBasedStateMachine):
    """Rules name a handle by a number, modulo the handles that can be used.

    13 and 14 may name one of which pages were given back, 15 one that was given back whole; rules name the last two
    handles by 17 and 16.

    Attributes:
        seen: how often each thing happened, over all runs.
    """

    shape: ClassVar[Shape]
    seen: ClassVar[Counter[str]]

    @initialize(
        hygiene=st.sampled_from(HYGIENES),
        eager=st.booleans(),
        first=st.lists(st.tuples(which, amount), min_size=2, max_size=4),
    )
    def start(self, hygiene: Hygiene, eager: bool, first: list[tuple[int, int]]) -> None:
        self.twin = Twin(binding(), self.shape.plan, hygiene, eager, self.seen)
        self.pool, self.model = self.twin.pool, self.twin.model
        self.made: list[KernelIds] = []
        self.choices: list[tuple[str, ...]] = [(name,) for name in self.model.rooms]
        for members in self.model.families.values():
            names = tuple(room.name for room in members)
            self.choices += [names, names, names[:2]] if len(names) > 2 else [names] * (len(names) - 1)

        for choice, tokens in first:
            self.alloc(choice, tokens)
            self.retain(choice, 0, tokens)

    @rule(choice=which, tokens=amount)
    def alloc(self, choice: int, tokens: int) -> None:
        names = self.choices[choice % len(self.choices)]
        family = self.model.rooms[names[0]].family
        tokens %= 3 * self.model.page_size(family) + 2
        every = names == tuple(room.name for room in self.model.families.get("tokens", ()))
        done = self.twin.act(
            lambda: self.pool.alloc(tokens, None if every else names),
            lambda pages: self.twin.live.append((pages, self.model.alloc(family, names, tokens, pages.ids))),
            lambda: (names, self.model.pages(family, tokens)),
        )
        self.saw("alloc", done)
        self.saw("joint allocation", done and len(names) > 1)

    @held
    @rule(one=which, tokens=amount)
    def extend(self, one: int, tokens: int) -> None:
        pages, claim = self.pick(one)
        tokens %= 2 * self.model.page_size(claim.family) + 2
        before = claim.ids()
        done = self.twin.act(
            lambda: self.pool.extend(pages, tokens),
            lambda _: self.model.extend(claim, tokens, pages.ids),
            lambda: (claim.names, sum(self.model.extend_needs(claim, tokens))),
        )
        self.saw("extend", done)
        self.saw("copy on write", claim.ids()[: len(before)] != before)

    @held
    @rule(one=which, start=which, length=which)
    def retain(self, one: int, start: int, length: int) -> None:
        pages, claim = self.pick(one)
        part = self.part(claim, start, length)
        done = self.twin.act(
            lambda: self.pool.retain(pages[part.start : part.stop] if length % 2 else pages),
            lambda copy: self.twin.live.append((copy, self.model.retain(claim, part))),
        )
        self.saw("retain", done)

    @held
    @rule(one=which, page=which)
    def fork(self, one: int, page: int) -> None:
        pages, claim = self.pick(one)
        if claim.entries:
            index = page % len(claim.entries)
            copied: list[bool] = []

            def mirror(result: bool) -> None:
                copied.append(self.model.fork(claim, index, pages.ids[index]))
                assert copied == [result]

            self.twin.act(
                lambda: self.pool.fork(pages, index),
                mirror,
                lambda: (claim.entries[index].held or (), 1),
            )
            self.saw("fork of a shared page", copied == [True])

    @held
    @rule(one=which, page=which, depth=st.integers(2, 4), keep=st.booleans())
    def branch(self, one: int, page: int, depth: int, keep: bool) -> None:
        """Private copies of private copies of one page, all in one step; those between go if they are not kept."""
        for _ in range(depth):
            pages, _claim = self.pick(one)
            count = len(self.twin.live)
            self.retain(one, 0, 0)
            if len(self.twin.live) > count:
                self.fork(NEWEST, page)
                if not keep and count > 1 and self.twin.live[count - 1][0] is pages:
                    self.free([NEWEST - 1])
                one = NEWEST

    @held
    @rule(one=which, tokens=amount)
    def truncate(self, one: int, tokens: int) -> None:
        pages, claim = self.pick(one)
        whole = tokens % 2 * self.model.page_size(claim.family)  # every other time to the end of a page
        tokens %= claim.tokens + 1
        tokens -= tokens % (whole or 1)
        done = self.twin.act(lambda: self.pool.truncate(pages, tokens), lambda _: self.model.truncate(claim, tokens))
        self.saw("truncate", done)

    @held
    @rule(ones=st.lists(which, min_size=1, max_size=2))
    def free(self, ones: list[int]) -> None:
        picked = [self.pick(one) for one in ones]
        parts = [(claim, range(len(claim.entries))) for _, claim in picked]
        handles = [pages for pages, _ in picked]
        done = self.twin.act(
            lambda: self.pool.free(handles if len(ones) > 1 else handles[0]), lambda _: self.model.free(parts)
        )
        if done:
            self.saw("free of a handle" if len(ones) == 1 else "free of several handles")
            self.twin.bury(picked)
        elif len(ones) == 1:
            self.twin.give_up(*picked[0])

    @held
    @rule(one=which)
    def replace(self, one: int) -> None:
        """Give back pages that are full of tags, and take as many again."""
        pages, claim = self.pick(one)
        if self.twin.usable(claim):
            self.twin.write(pages, claim, 0, claim.tokens)
            self.free([one])
            self.alloc(self.choices.index(claim.names), claim.tokens)

    @held
    @rule(one=which, start=which, length=which)
    def free_slice(self, one: int, start: int, length: int) -> None:
        pages, claim = self.pick(one)
        part = self.part(claim, start, length)
        some = pages[part.start : part.stop] if length % 2 else pages
        done = self.twin.act(lambda: self.pool[claim.names[0]].free(some), lambda _: self.model.free([(claim, part)]))
        self.saw("free of a slice", done and len(part) > 0)

    @rule(choice=which, numbers=st.lists(amount, min_size=1, max_size=3))
    def free_by_number(self, choice: int, numbers: list[int]) -> None:
        name = self.choices[choice % len(self.choices)][0]
        family = self.model.rooms[name].family
        pages = sorted({v for one, v in self.model.tags if self.model.rooms[one].family == family})
        ids = [pages[number % len(pages)] if pages and number < 40 else 0 for number in numbers]
        done = self.twin.act(lambda: self.pool[name].free(iter(ids)), lambda _: self.model.free_ids(family, ids))
        self.saw("free by number", done)

    @held
    @rule(one=which, before=amount, start=which, length=which)
    def evict(self, one: int, before: int, start: int, length: int) -> None:
        pages, claim = self.pick(one)
        name = claim.names[start % len(claim.names)]
        part = self.part(claim, start, length)
        tokens = self.model.tokens_of(claim, part)
        before = tokens if before > 30 else before % (tokens + 1)
        shared = sum(self.model.holders[name, entry.v] > 1 for entry in claim.entries)

        def mirror(given: int) -> None:
            assert self.model.evict(name, claim, part, before) == given

        some = pages[part.start : part.stop] if length % 2 else pages
        done = self.twin.act(lambda: self.pool.evict(name, some, before), mirror)
        left = sum(self.model.holders[name, entry.v] > 1 for entry in claim.entries)
        self.saw("eviction", done)
        self.saw("eviction of a shared page", left < shared)

    @held
    @rule(one=which, start=which, length=which, some=st.booleans())
    def pin(self, one: int, start: int, length: int, some: bool) -> None:
        pages, claim = self.pick(one)
        part = self.part(claim, start, length)
        chosen = pages[part.start : part.stop] if length % 2 else pages
        done = self.twin.pin(chosen, claim, part, claim.names[: 1 + start % len(claim.names)] if some else None)
        self.saw("pin", done and len(part) > 0)

    @precondition(lambda self: self.twin.pins)
    @rule(ones=st.sets(which, min_size=1, max_size=2))
    def unpin(self, ones: set[int]) -> None:
        used = {name: self.pool[name].used_pages for name in self.pool}
        self.twin.unpin(sorted({one % len(self.twin.pins) for one in ones}))
        self.saw("unpin")
        self.saw("only a pin held a page", used != {name: self.pool[name].used_pages for name in self.pool})

    @rule(most=amount, choice=which)
    def compact(self, most: int, choice: int) -> None:
        name = list(self.model.rooms)[choice] if choice < len(self.model.rooms) else None
        before = {one: self.pool.available(one) for one in self.pool}
        epoch = self.pool.epoch
        self.twin.exact, self.twin.compared = self.twin.settled, False
        done = self.pool.compact(most, name)
        if self.twin.settled:  # then there is no other work
            work = self.pool.drain_work()
            assert sum(len(item.first) for item in work if item.kind == "copy") == done.moves
            self.pool.run(work)
        self.model.places.moves += done.moves
        assert done.moves <= most
        assert self.pool.epoch == epoch + (done.moves > 0)
        for one in self.pool:
            after = self.pool.available(one)
            assert before[one].pages <= after.pages <= before[one].after_compaction == after.after_compaction
            if name is None and most >= before[one].moves:
                assert after.pages == before[one].after_compaction, f"{one} cannot have what it was promised"
        for ids in self.made:
            space = self.pool[ids.space.key.owner].space("kernel", ids.space.key.unit)
            try:
                assert space.accept(ids, "a read") == ids.tensors
                assert ids.epoch == self.pool.epoch
            except StaleIds:
                assert ids.epoch < self.pool.epoch
                self.saw("stale ids")
        self.saw("compaction", done.moves > 0)
        self.saw("compaction beside a pin", done.moves > 0 and bool(self.model.pins))
        self.saw("compaction frees a slab", done.slabs_freed > 0)

    @held
    @rule(one=which, start=amount, length=amount)
    def write(self, one: int, start: int, length: int) -> None:
        pages, claim = self.pick(one)
        start %= claim.tokens + 1
        if self.twin.usable(claim):
            self.twin.write(pages, claim, start, min(claim.tokens, start + length))
            self.saw("write")

    @held
    @rule(one=which)
    def read(self, one: int) -> None:
        pages, claim = self.pick(one)
        if self.twin.usable(claim):
            self.twin.read(pages, claim)
            self.saw("read")

    @rule(choice=which, number=amount)
    def translate(self, choice: int, number: int) -> None:
        name = self.choices[choice % len(self.choices)][0]
        made = self.twin.translate(name, ("tokens", "pages")[number % 2], DTYPES[number // 2 % 2], number)
        self.made = [*self.made[-3:], made]
        self.saw("translate")

    @rule(drained=st.booleans())
    def settle(self, drained: bool) -> None:
        self.twin.settle(drained=drained)
        self.saw("drain_work and run" if drained else "flush")

    @rule(at=st.integers(0, 8))
    def interrupt(self, at: int) -> None:
        """Work that is not done stays pending: whoever asks for it next gets all of it."""
        call = self.pool.drain_work if at < 2 else self.pool.flush  # what is drained and then fails is the host's
        with Stop(at), suppress(torch.OutOfMemoryError):
            call()
        self.saw("work is interrupted", self.pool.pending)

    @rule(kind=st.sampled_from(sorted(MISUSES)), one=which, number=which)
    def misuse(self, kind: str, one: int, number: int) -> None:
        handle = self.pick(one) if self.twin.live else None
        if MISUSES[kind](self.twin, handle, number):
            self.saw(f"misuse: {kind}")

    @invariant()
    def agrees(self) -> None:
        """After every step, errors included: what was not to change has not."""
        self.twin.compare()
        self.seen["steps"] += 1

    def teardown(self) -> None:
        if hasattr(self, "twin"):
            self.twin.finish()
            self.seen["runs"] += 1

    def saw(self, what: str, happened: bool = True) -> None:
        if happened:
            self.twin.saw(what)

    def pick(self, one: int) -> tuple[Pages, Claim]:
        if one == 15 and self.twin.dead:
            return self.twin.dead[-1]
        if one >= NEWEST - 1:
            return self.twin.live[max(one - NEWEST - 1, -len(self.twin.live))]
        usable = [handle for handle in self.twin.live if one > 12 or self.twin.usable(handle[1])] or self.twin.live
        return usable[one % len(usable)]

    def part(self, claim: Claim, start: int, length: int) -> range:
        """A part of a handle; for an even length all of it."""
        count = len(claim.entries)
        if length % 2 == 0:
            return range(count)
        start %= count + 1
        return range(start, min(count, start + length))


def machine_for(shape: Shape, seen: Counter[str]) -> Any:
    """A machine class for one shape, which counts into ``seen``."""
    return type(f"PoolMachine_{shape}", (PoolMachine,), {"shape": shape, "seen": seen})
