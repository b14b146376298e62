"""Pages that compaction moves take their cache along, between steps and in the middle of one."""

from collections.abc import Callable
from typing import Any

import torch


def fragmented(setup: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """Two equal caches, pooled and dynamic, whose pages lie scattered between those of caches that have gone."""
    s = setup("gemma3", page_size=1, lengths=(5,), tokens=400)
    others = [s.host.new_cache() for _ in range(8)]
    dynamic, cache = s.caches()
    for step in range(4):
        ids = torch.full((1, 2), 3 + step)
        for one in (*others[:4], cache, *others[4:], dynamic):
            s.forward(one, ids)
    for one in others:
        one.release()
    return s, dynamic, cache


def test_between_steps(setup: Callable[..., Any]) -> None:
    s, dynamic, cache = fragmented(setup)
    with cache:
        before = cache.pages[0].ids
        physical = s.host.pool["full"].physical_ids(cache.pages[0].token_ids()).tensor
        assert s.host.pool.compact(1000).moves > 0
        assert cache.pages[0].ids == before
        assert not torch.equal(s.host.pool["full"].physical_ids(cache.pages[0].token_ids()).tensor, physical)
        token = torch.full((1, 1), 9)
        assert torch.equal(s.forward(cache, token), s.forward(dynamic, token))
        s.host.pool.check()


def test_in_the_middle_of_a_step(setup: Callable[..., Any]) -> None:
    s, dynamic, cache = fragmented(setup)
    with cache:
        new = torch.randn(1, 2, 1, 16)
        for layer in range(4):
            if layer == 2:
                assert s.host.pool.compact(1000).moves > 0
            ours, theirs = cache.update(new, new, layer), dynamic.update(new, new, layer)
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])
        s.host.pool.check()
