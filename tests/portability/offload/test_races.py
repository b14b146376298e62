"""Many requests at once, with threads inside a slow and faulty store: what comes back is right, or not said to be."""

import random
import threading
from collections.abc import Sequence

import pytest
import torch

from portability.images import HAL, make_pool
from portability.offload.scene import FULL, GDN, LAYOUTS, SWA, HeldStore
from statehal.errors import PoolExhausted
from statehal.pool import Pages, StatePool
from statehal.portability import Grouping
from statehal.portability.offload import Load, Offloader, RankPool, Transfer
from statehal.portability.store import BufferLike, Outcome, PartRef, Reason

N, LONGEST = 4, 16
SPECS = [FULL.spec, SWA.spec, GDN.spec]


class RestlessStore(HeldStore):
    """Takes its time, and fails now and then, in ways of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.pause = threading.Event()
        self.restless = self.most_restless = 0

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        return self._disturb(items) or super().put(items)

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        return self._disturb(items) or super().get(items)

    def _disturb(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome] | None:
        with self.lock:
            drawn = self.random.random()
            self.restless += 1
            self.most_restless = max(self.restless, self.most_restless)
        self.pause.wait(drawn / 300)
        with self.lock:
            self.restless -= 1
        if drawn < 0.04:
            raise OSError("network")
        return [Outcome(False, Reason.BUSY)] * len(items) if drawn < 0.08 else None


class Hammer:
    """A host that stores, loads, frees, evicts and compacts, in an order that is drawn."""

    def __init__(self, seed: int, workers: int) -> None:
        self.random = random.Random(seed)
        made = make_pool(SPECS, LAYOUTS, 4, 160, slots=12)
        self.pool: StatePool = made
        self.rank = RankPool(HAL, made, grouping=Grouping.of(SPECS, object_tokens=N), model="m", revision="1")
        self.store = RestlessStore(seed)
        self.offload = Offloader(
            self.store, self.rank, host_bytes=5 * self.rank.block_bytes, max_queued=6, workers=workers
        )
        self.stores: dict[int, Transfer] = {}
        self.loads: list[tuple[int, Load, Pages, Pages, int]] = []
        self.loaded = self.failed = 0

    def tokens(self, request: int) -> list[int]:
        return [1000 * request + i for i in range(LONGEST + 1)]

    def mark(self, request: int, pages: Pages, slot: Pages) -> None:
        """Give each token, and the state, a number that says whose it is."""
        places = torch.arange(LONGEST)
        for name in ("full", "swa"):
            ids = self.pool[name].physical_ids(pages.page_ids()).tensor
            for layer in self.pool[name].spec.layers:
                view = self.pool[name].view("k", layer, "page").view(torch.int16)
                if name == "swa":  # heads before tokens
                    view = view.transpose(1, 2)
                view[ids[places // 4], places % 4] = (100 * request + places).to(torch.int16)[:, None, None]
        (page,) = self.pool["gdn"].physical_ids(slot.page_ids()).tensor
        for layer in GDN.spec.layers:
            self.pool["gdn"].view("state", layer, "page")[page] = float(request)

    def seen(self, pages: Pages, slot: Pages, tokens: range) -> set[object]:
        """Whose tokens and state these are: one request, where all is well."""
        found: set[object] = set()
        for name in ("full", "swa"):
            ids = self.pool[name].physical_ids(pages.page_ids()).tensor
            for layer in self.pool[name].spec.layers:
                view = self.pool[name].view("k", layer, "page").view(torch.int16)
                view = view.transpose(1, 2) if name == "swa" else view
                for token in tokens:
                    found |= {value - token for value in view[ids[token // 4], token % 4].flatten().tolist()}
        (page,) = self.pool["gdn"].physical_ids(slot.page_ids()).tensor
        for layer in GDN.spec.layers:
            values = self.pool["gdn"].view("state", layer, "page")[page].flatten().tolist()
            found |= {100 * int(value) for value in values}
        return found

    def room(self) -> "tuple[Pages, Pages] | None":
        """Pages and a slot of a request, or nothing."""
        try:
            pages = self.pool.alloc(LONGEST)
        except PoolExhausted:
            return None
        try:
            return pages, self.pool.alloc(1, "gdn")
        except PoolExhausted:
            self.pool.free(pages)
            return None

    def begin(self, request: int) -> None:
        taken = self.room()
        if taken is None:
            return
        pages, slot = taken
        self.pool.flush()
        self.mark(request, pages, slot)
        self.stores[request] = self.offload.store(self.rank.prefix(self.tokens(request)), [pages, slot], stop=LONGEST)
        if self.random.random() < 0.3:
            self.pool.evict("swa", pages, self.random.randrange(LONGEST))
        self.pool.free([pages, slot])

    def begin_load(self, request: int) -> None:
        prefix = self.rank.prefix(self.tokens(request))
        length = self.offload.lookup(prefix).longest
        if not length:
            return
        taken = self.room()
        if taken is None:
            return
        pages, slot = taken
        load = self.offload.load(prefix, [pages, slot], stop=length)
        self.loads.append((request, load, pages, slot, length))

    def end_load(self) -> None:
        request, load, pages, slot, length = self.loads.pop(self.random.randrange(len(self.loads)))
        if self.random.random() < 0.2:
            load.cancel()
        assert load.wait(60)
        assert load.length in (0, length)
        assert (load.length == length) == all(load.results)
        if load.length:
            assert self.seen(pages, slot, range(length)) == {100 * request}
            self.loaded += 1
        else:
            self.failed += 1
        assert (set(pages.holders), slot.holders) == ({1}, (1,))
        self.pool.free([pages, slot])

    def run(self, loads: int) -> None:
        """Go on until that many loads came true, and a few did not."""
        for step in range(100 * loads):
            if self.loaded >= loads and self.failed > 4:
                return
            drawn = self.random.random()
            if drawn < 0.35:
                self.begin(step % 40)
            elif drawn < 0.65 and self.stores:
                self.begin_load(self.random.choice(list(self.stores)))
            elif drawn < 0.85 and self.loads:
                self.end_load()
            elif drawn < 0.9 and self.stores:
                self.random.choice(list(self.stores.values())).cancel()
            elif drawn < 0.96:
                self.pool.compact(self.random.randrange(8))
                self.pool.flush()
            else:
                self.offload.poll()


@pytest.mark.parametrize(("seed", "workers"), [(1, 1), (2, 3), (3, 4)])
def test_what_comes_back_is_its_own_requests(seed: int, workers: int) -> None:
    hammer = Hammer(seed, workers)
    hammer.run(20)
    assert hammer.loaded >= 20, "too little happened to learn from"
    assert hammer.failed > 4
    while hammer.loads:
        hammer.end_load()
    hammer.offload.close(drain=seed % 2 == 0)
    assert workers == 1 or hammer.store.most_restless > 1, "never two threads in the store at once"
    assert all(transfer.done for transfer in hammer.stores.values())
    stored = {(digest, key) for digest, key, _ in hammer.store.values}
    for request, transfer in hammer.stores.items():
        keys = hammer.rank.prefix(hammer.tokens(request)).keys
        for number, outcome in zip(transfer.blocks, transfer.results, strict=True):
            if outcome:
                assert (hammer.rank.shares["full"].namespace.digest, keys[number]) in stored, "acknowledged, and lost"
    assert not any(family.pins for family in hammer.pool.families)
    assert [hammer.pool[name].used_pages for name in hammer.pool] == [0, 0, 0]
    hammer.pool.check()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10, 18))
def test_what_comes_back_is_its_own_requests_over_and_over(seed: int) -> None:
    hammer = Hammer(seed, 1 + seed % 5)
    hammer.run(150)
    assert hammer.loaded >= 150
    hammer.offload.close(drain=False)
    hammer.pool.check()
