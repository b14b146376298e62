"""One pool: attention pages become conv slots and back, as requests come, and what runs out is named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from statehal.errors import PoolExhausted

FAMILIES = ("qwen3_next", "kimi_linear", "falcon_h1")


def fill(s: Any, tokens: int) -> list[Any]:
    """Caches of one sequence each, until the pool has no room for another."""
    caches: list[Any] = []
    ids = torch.full((1, tokens), 5)
    while True:
        cache = s.host.new_cache()
        try:
            s.forward(cache, ids)
        except PoolExhausted:
            cache.release()
            return caches
        caches.append(cache)


@pytest.mark.parametrize("kind", FAMILIES)
def test_pages_become_slots_and_slots_become_pages(setup: Callable[..., Any], kind: str) -> None:
    """Long requests fill the pool with pages, short ones with slots, on one pool, whose caches stay right."""
    s = setup(kind, page_size=4, lengths=(20,), total_bytes=200_000)
    pool = s.host.pool
    rows = next(name for name in pool if name != "conv")
    with s.host.new_cache() as cache:
        expected = s.forward(cache, s.ids)
    held: list[tuple[int, int]] = []
    for tokens in (120, 1, 120, 1):
        caches = fill(s, tokens)
        assert caches
        held.append((pool[rows].used_pages, pool["conv"].used_pages))
        assert pool.available("conv").pages == 0 or pool.available(rows).pages < tokens // 4 + 1
        pool.check()
        for one in caches:
            one.release()
        with s.host.new_cache() as cache:
            assert torch.equal(s.forward(cache, s.ids), expected)
    (many_rows, few_slots), (few_rows, many_slots) = held[:2]
    assert held[2:] == held[:2], "what the pool gives does not depend on what it gave before"
    assert many_rows > 1.5 * few_rows
    assert many_slots > 2 * few_slots


def test_the_error_names_the_sub_pool_what_is_free_and_what_compaction_gives(setup: Callable[..., Any]) -> None:
    s = setup("qwen3_next", page_size=4, lengths=(20,), total_bytes=200_000)
    caches = fill(s, 1)
    for one in caches[::2]:
        one.release()
    with s.host.new_cache() as cache:
        text = (
            r"sub-pool 'full' is asked for \d+ pages and can give \d+ now; compaction would make it \d+ with \d+ moves "
        )
        with pytest.raises(PoolExhausted, match=text + r"\(fix: free or evict pages, or "):
            s.forward(cache, torch.full((1, 8000), 5))
    for one in caches[1::2]:
        one.release()
