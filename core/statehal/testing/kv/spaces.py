"""Ids that an operation on a sub-pool must refuse, each made as a host could make it by mistake."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.errors import StaleIds, WrongIdSpace
from statehal.pool import StatePool
from statehal.spec import Attention, Latent, Spec
from statehal.testing.draws import page_sizes
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.target import Target

WRONG = (
    "kernel ids of another sub-pool", "kernel ids of another pool", "kernel ids of pages", "physical ids",
    "virtual ids", "a bare tensor", "None", "ids from before a compaction",
)  # fmt: skip
"""Kinds of ids that do not count tokens of the sub-pool in one of its address forms."""


@dataclass(frozen=True)
class SpaceCase:
    """A sub-pool ``"kv"``, beside ``"full"`` of which it shares slabs, and ids of some kind."""

    spec: Attention | Latent
    page_size: int
    count: int
    wrong: str

    @property
    def features(self) -> frozenset[str]:
        return frozenset({self.wrong, f"page size {self.page_size}", "a window" if self.spec.window else "no window"})


@st.composite
def space_cases(draw: DrawFn, tags: tuple[str, ...], *, latent: bool = False) -> SpaceCase:
    """Cases for a spec of either kind in one of the dtypes."""
    dtype = draw(st.sampled_from(tags)).removeprefix("store:")
    window = draw(st.sampled_from([None, 8]))
    spec = Latent("kv", (1, 3), 8, 4, dtype, window=window) if latent else Attention("kv", (1, 3), 2, 4, dtype)
    if window and isinstance(spec, Attention):
        spec = Attention("kv", (1, 3), 2, 4, dtype, window=window)
    return SpaceCase(spec, draw(page_sizes()), draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from(WRONG)))


def pool_of(target: Target, case: SpaceCase) -> StatePool:
    """A pool in which a virtual page is one page of ``"full"`` and another, a quarter as big, of ``"kv"``."""
    layers = (0, 2, 4, 5, 6, 7, 8, 9)
    latent = isinstance(case.spec, Latent)
    other = (
        Latent("full", layers, 8, 4, case.spec.dtype) if latent else Attention("full", layers, 2, 4, case.spec.dtype)
    )
    specs: list[Spec] = [other, case.spec]
    return target.pool(specs, tokens=32 * case.page_size, page_size=case.page_size)


def make(target: Target, case: SpaceCase, pool: StatePool) -> Any:
    """Ids of the case's kind, of tokens that are in use; ``None`` also where a compaction had nothing to move."""
    size, sub = case.page_size, pool["kv"]
    first = pool.alloc(size, "kv")
    virtual = pool.alloc(4 * size).token_ids()[: case.count]
    scattered = [pool.alloc(size) for _ in range(12)]
    pool.free(first)
    if case.wrong == "ids from before a compaction":
        ids = sub.kernel_ids(virtual)
        for pages in scattered[::2]:
            pool.free(pages)
        pool.compact(10**6)
        return ids if ids.epoch != pool.epoch else None
    if case.wrong == "kernel ids of another pool":
        again = pool_of(target, case)
        return again["kv"].kernel_ids(again.alloc(4 * size).token_ids()[: case.count])
    pages = sub.space("virtual", "pages").assume(target.on_device(torch.tensor(scattered[0].ids * case.count)))
    made: dict[str, Callable[[], object]] = {
        "kernel ids of another sub-pool": lambda: pool["full"].kernel_ids(virtual),
        "kernel ids of pages": lambda: sub.kernel_ids(pages),
        "physical ids": lambda: sub.physical_ids(virtual),
        "virtual ids": lambda: virtual,
        "a bare tensor": lambda: sub.kernel_ids(virtual).tensors[0],
        "None": lambda: None,
    }
    return made[case.wrong]()


def refuses(
    target: Target, case: SpaceCase, pool: StatePool, ids: object, calls: Mapping[str, Callable[[], object]]
) -> None:
    """Fail unless every call raises ``WrongIdSpace`` (``StaleIds`` after a compaction) and changes no byte."""
    stale = case.wrong == "ids from before a compaction"
    if stale and ids is None:
        return
    due = StaleIds if stale else WrongIdSpace
    pool.flush()
    before = target.image(pool)
    for name, call in calls.items():
        try:
            call()
        except due:
            pass
        except Exception as error:
            raise AssertionError(f"{name} with {case.wrong} raised {type(error).__name__}: {error}") from error
        else:
            raise AssertionError(f"{name} took {case.wrong}: expected {due.__name__}")
        different = first_difference(pool, before, target.image(pool))
        assert not different, f"{name} refused {case.wrong} after it had stored: {different}"
