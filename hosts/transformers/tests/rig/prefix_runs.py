"""Prompts, stores and runs for the tests of prefix stores."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import torch

from statehal.portability.store import FileStore
from statehal_transformers import PrefixCache, PrefixStore

N = 16
"""Tokens of a block."""


def prompt(length: int, seed: int = 0, batch: int = 1) -> torch.Tensor:
    return torch.randint(3, 97, (batch, length), generator=torch.Generator().manual_seed(seed))


@contextmanager
def opened(host: Any, store: Any, **options: Any) -> Iterator[PrefixStore]:
    """A prefix store over a directory or a ``BlockStore``; no page is held or pinned afterwards."""
    store = FileStore(store) if isinstance(store, Path) else store
    given: dict[str, Any] = {"model": "tiny", "revision": "1", "object_tokens": N, "host_bytes": 16 << 20}
    with PrefixStore(host, store, **(given | options)) as prefixes:
        yield prefixes
        prefixes.wait()
        host.collect()
        host.pool.check()
        assert [host.pool[name].used_pages for name in host.pool] == [0] * len(host.plan.subpools)


def run(setup: Any, prefixes: PrefixStore, ids: torch.Tensor, **options: Any) -> tuple[Any, PrefixCache]:
    """Generate with a cache of the store."""
    with prefixes.host.routed(), prefixes.cache(ids) as cache:
        return setup.generate(cache, ids, torch.ones_like(ids), **({"eos_token_id": None} | options)), cache


def fresh(setup: Any, ids: torch.Tensor, **options: Any) -> Any:
    """Generate with transformers' own cache, in one pass over the prompt."""
    options = {"eos_token_id": None} | options
    return setup.generate(setup.caches()[0], ids, torch.ones_like(ids), **options)


def farthest(ours: Any, theirs: Any) -> float:
    """The largest difference of two runs' logits."""
    assert len(ours.logits) == len(theirs.logits)
    return max(float((a - b).abs().max()) for a, b in zip(ours.logits, theirs.logits, strict=True))


def same_bits(ours: Any, theirs: Any) -> bool:
    pairs = zip(ours.logits, theirs.logits, strict=True)
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs)


class Gated:
    """A store whose ``put`` waits for a gate, and which counts what it was asked."""

    def __init__(self, store: FileStore) -> None:
        self.store, self.waiting = store, Event()
        self.gate: Any = Event()

    def put(self, items: Sequence[Any]) -> Any:
        self.waiting.set()
        assert self.gate.wait(60), "nobody opened the gate"
        return self.store.put(items)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
