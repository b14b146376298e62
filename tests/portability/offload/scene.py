"""A hybrid model's pools, whose every byte is known, and stores that can be held up or made to fail."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from portability.images import HAL, fill_tokens, make_pool, payload, physical, raw, slot_bytes, token_bytes
from portability.models import BY_NAME, Model
from statehal import Binding
from statehal.pool import Pages, StatePool
from statehal.portability import Grouping, Topology, shard
from statehal.portability.offload import Offloader, RankPool
from statehal.portability.store import BufferLike, Outcome, PartRef, block_keys
from statehal.spec import ConvRecurrent
from store.memory_store import MemoryStore, Name

Items = Sequence[tuple[PartRef, BufferLike]]

N = 12
"""Tokens of a block."""
FULL, GDN = BY_NAME["full"], BY_NAME["gdn"]
SWA = Model(replace(BY_NAME["swa"].spec, window=N + 3), BY_NAME["swa"].rows)  # type: ignore[call-arg]
MODELS = {"full": FULL, "swa": SWA, "gdn": GDN}
LAYOUTS = {"full": "NHD", "swa": "HND", "gdn": "ring"}
OTHER_LAYOUTS = {"full": "token-major", "swa": "NHD", "gdn": "offset, channels first"}


@dataclass
class Host:
    """A rank's pool and what it holds of the model."""

    pool: StatePool
    rank: RankPool
    topology: Topology
    number: int

    def token_names(self) -> list[str]:
        return [name for name in self.pool if MODELS[name].spec.kind == "tokens"]

    def fill(self, pages: Pages, tokens: int) -> None:
        """Store every byte of the first tokens, in every sub-pool of tokens."""
        for name in self.token_names():
            fill_tokens(self.pool[name], MODELS[name], pages, tokens, self.topology, self.number)

    def smear(self, *handles: Pages) -> None:
        """Fill all bytes of pages and slots with what is nobody's."""
        self.pool.flush()
        for handle in handles:
            for member in handle.lease.family.members:
                if handle.lease.mask & member.bit:
                    for view in self.pool[member.name].page_views:
                        view[:, physical(self.pool[member.name], handle)] = 0xA5
        self.pool.check()

    def fill_slot(self, slot: Pages, point: int, cursor: int = 0) -> None:
        """Store every live byte of the state ``point`` in a slot."""
        sub = self.pool["gdn"]
        (page,) = physical(sub, slot)
        image = bytearray(raw(sub.buffer))
        for at, value in slot_bytes(sub, GDN, page, cursor, self.topology, self.number, point):
            image[at] = value
        sub.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
        sub.view("cursor", sub.spec.layers[0], "page")[page] = cursor

    def wrong_tokens(self, name: str, pages: Pages, tokens: Sequence[int]) -> list[int]:
        """Those of these tokens whose bytes are not the model's."""
        image = raw(self.pool.buffer)
        sub, model = self.pool[name], MODELS[name]
        return [
            token
            for token in tokens
            if any(
                image[at] != value for at, value in token_bytes(sub, model, pages, [token], self.topology, self.number)
            )
        ]

    def nonzero_tokens(self, name: str, pages: Pages, tokens: Sequence[int]) -> list[int]:
        """Those of these tokens that have a byte other than zero."""
        image = raw(self.pool.buffer)
        sub, model = self.pool[name], MODELS[name]
        return [
            token
            for token in tokens
            if any(image[at] for at, _ in token_bytes(sub, model, pages, [token], self.topology, self.number))
        ]

    def holds_point(self, slot: Pages, point: int) -> bool:
        """Whether a slot has the live bytes of the state ``point``, where its own cursor says."""
        sub = self.pool["gdn"]
        (page,) = physical(sub, slot)
        cursor = int(sub.view("cursor", sub.spec.layers[0], "page")[page])
        image = raw(sub.buffer)
        found = slot_bytes(sub, GDN, page, cursor, self.topology, self.number, point)
        return all(image[at] == value for at, value in found)


def host(
    names: Sequence[str] = ("full", "swa", "gdn"),
    *,
    layouts: dict[str, str] = LAYOUTS,
    page_size: int = 4,
    tokens: int = 120,
    slots: int = 6,
    topology: Topology | None = None,
    number: int = 0,
    hal: Binding = HAL,
    object_tokens: int = N,
    memory: object = None,
) -> Host:
    """A rank's pool, on which freed pages keep their bytes; ``memory`` takes the place of the binding's operations."""
    specs = [MODELS[name].spec for name in names]
    topology = topology or Topology()
    pool = make_pool(shard(specs, topology, number), layouts, page_size, tokens, hal, slots)
    grouping = Grouping.of(specs, object_tokens=object_tokens)
    hal = hal if memory is None else type("Hal", (), {"memory": memory})()
    rank = RankPool(hal, pool, specs, topology, number, grouping, model="tiny", revision="r1")
    return Host(pool, rank, topology, number)


class OpeningOffloader(Offloader):
    """One that opens its store's gate where a test fails, lest closing waits for ever."""

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, AssertionError):
            self._store.gate.set()  # type: ignore[attr-defined]
        super().__exit__(kind, error, traceback)


def offloader(store: Any, made: Host, *, blocks: int = 3, **options: Any) -> Offloader:
    """An offloader with host memory for that many blocks."""
    return OpeningOffloader(store, made.rank, host_bytes=blocks * made.rank.block_bytes, **options)


def stored_parts(values: dict[Name, bytes], made: Host, tokens: Sequence[int]) -> dict[tuple[str, int, str], bytes]:
    """Payloads in a store by sub-pool, number of the block and part."""
    keys = block_keys(tokens, made.rank.object_tokens)
    found = {}
    for name, share in made.rank.shares.items():
        for (digest, key, part), data in values.items():
            if digest == share.namespace.digest:
                head = 8 + int.from_bytes(data[:8], "little")
                found[name, keys.index(key), part] = data[head:]
    return found


def expected_parts(made: Host, name: str, number: int, point: int = 0) -> dict[tuple[str, int, str], bytes]:
    """The same by the definition of a part, for those that the rank holds."""
    model, n = MODELS[name], made.rank.object_tokens
    tokens = 0 if isinstance(model.spec, ConvRecurrent) else n
    return {
        (name, number, ref.part.id): payload(model, ref.part.as_dict(), number * n, tokens, point)
        for ref in made.rank.shares[name].refs("0" * 64)
    }


class HeldStore(MemoryStore):
    """A store of which puts and gets wait while ``gate`` is closed, and fail where ``faults`` says so.

    Attributes:
        entered: set when a put or a get waits.
        faults: of ``"put"``, ``"get"`` and ``"exists"``, what answers for a part, or ``None``; may raise.
        inside: threads that are in a put or a get now, and the most that ever were.
    """

    def __init__(self, values: dict[Name, bytes] | None = None) -> None:
        super().__init__({} if values is None else values)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.faults: dict[str, Callable[[PartRef], Outcome | None]] = {}
        self.inside = self.most_inside = 0

    def exists(self, refs: Sequence[PartRef]) -> list[Outcome]:
        return [self._fault("exists", ref) or one for ref, one in zip(refs, super().exists(refs), strict=True)]

    def put(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        return self._held("put", super().put, items)

    def get(self, items: Sequence[tuple[PartRef, BufferLike]]) -> list[Outcome]:
        return self._held("get", super().get, items)

    def _held(self, operation: str, right: Callable[[Items], list[Outcome]], items: Items) -> list[Outcome]:
        self._hold()
        try:
            found = []
            for item in items:
                fault = self._fault(operation, item[0])
                found.append(right([item])[0] if fault is None else fault)
            return found
        finally:
            self._leave()

    def _fault(self, operation: str, ref: PartRef) -> Outcome | None:
        return self.faults[operation](ref) if operation in self.faults else None

    def _hold(self) -> None:
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.inside, self.most_inside)
        self.entered.set()
        assert self.gate.wait(60), "a test forgot to open the gate"

    def _leave(self) -> None:
        with self.lock:
            self.inside -= 1
