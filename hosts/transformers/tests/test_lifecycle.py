"""Pages come back: when a cache is released, reset, left or forgotten, and when the pool runs out."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from statehal.errors import PoolExhausted, UseAfterFree
from statehal_transformers import PoolHost

KINDS = ("llama", "gemma3")


def used(host: PoolHost) -> int:
    host.pool.check()
    return sum(host.pool[name].used_pages for name in host.pool)


@pytest.mark.parametrize("kind", KINDS)
def test_reset_gives_all_pages_back_and_the_cache_goes_on(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=3)
    with s.host.new_cache() as cache:
        first = s.forward(cache, s.ids)
        assert used(s.host) > 0
        cache.reset()
        assert (used(s.host), cache.get_seq_length(), cache.batch_size) == (0, 0, -1)
        assert torch.equal(s.forward(cache, s.ids), first)


@pytest.mark.parametrize("kind", KINDS)
def test_a_released_cache_holds_nothing_and_takes_nothing(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=3)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
    assert used(s.host) == 0
    cache.release()
    with pytest.raises(UseAfterFree, match=r"the cache was released .*\(fix: host.new_cache\(\)\)"):
        s.forward(cache, s.ids)
    assert used(s.host) == 0


@pytest.mark.parametrize("ask", ["collect", "new_cache"])
def test_the_pages_of_a_forgotten_cache_come_back_when_the_host_is_asked(setup: Callable[..., Any], ask: str) -> None:
    s = setup("llama", page_size=3)
    forgotten = s.host.new_cache()
    s.forward(forgotten, s.ids)
    held = used(s.host)
    del forgotten
    gc.collect()
    assert used(s.host) == held, "a finalizer must not touch the pool: it may run inside one of its methods"
    answer = getattr(s.host, ask)()
    assert ask == "new_cache" or answer == 1
    assert used(s.host) == 0


def test_a_forgotten_cache_gives_its_snapshots_back_too(setup: Callable[..., Any]) -> None:
    s = setup("lfm2", lengths=(12,), draft_tokens=3, requests=4)
    forgotten = s.host.new_cache()
    forgotten.activate_past_recording()
    s.forward(forgotten, s.ids)
    assert s.host.pool["conv"].used_pages == 1 + 3
    del forgotten
    gc.collect()
    assert s.host.collect() == 1
    assert used(s.host) == 0


def test_a_step_collects_what_others_forgot(setup: Callable[..., Any]) -> None:
    s = setup("llama", page_size=3)
    forgotten = s.host.new_cache()
    with s.host.new_cache() as cache:
        s.forward(forgotten, s.ids)
        del forgotten
        gc.collect()
        s.forward(cache, s.ids)
        assert used(s.host) == sum(len(pages) for pages in cache.pages)


def test_a_released_cache_is_not_collected_again(setup: Callable[..., Any]) -> None:
    s = setup("llama")
    cache = s.host.new_cache()
    s.forward(cache, s.ids)
    cache.release()
    del cache
    gc.collect()
    assert s.host.collect() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_exhausted_pool_leaves_the_cache_as_it_was(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=4, lengths=(24, 24, 24), tokens=80)
    with s.host.new_cache() as alone:
        expected = [s.forward(alone, ids) for ids in (s.ids[:2], s.ids[:2, :1])]
    with s.host.new_cache() as cache, s.host.new_cache() as other:
        assert torch.equal(s.forward(cache, s.ids[:2]), expected[0])
        before, length = used(s.host), cache.get_seq_length()
        for batch in (s.ids[:2].repeat(1, 4), s.ids[:2].repeat(1, 2)):  # for one row there may be room, not for two
            with pytest.raises(PoolExhausted, match=r"sub-pool '\w+' is asked for \d+ pages"):
                s.forward(cache, batch)
            assert (used(s.host), cache.get_seq_length(), len(cache.pages)) == (before, length, 2)
        with pytest.raises(PoolExhausted):
            s.forward(other, s.ids.repeat(1, 2))
        assert used(s.host) == before
        assert torch.equal(s.forward(cache, s.ids[:2, :1]), expected[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_passes_between_inference_mode_and_the_rest(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=3)
    steps = (s.ids, s.ids[:, :4], s.ids[:, :1], s.ids[:, :1])
    with s.host.new_cache() as alone:
        expected = [s.forward(alone, ids) for ids in steps]
    with s.host.new_cache() as cache:
        for step, ids in enumerate(steps):
            with torch.inference_mode(step % 2 == 0):
                assert torch.equal(s.forward(cache, ids), expected[step])
                cache.reorder_cache(torch.arange(3))


def test_the_pool_is_allocated_once(setup: Callable[..., Any]) -> None:
    s = setup("gemma3")
    address, size = s.host.pool.buffer.data_ptr(), s.host.pool.buffer.numel()
    for _ in range(3):
        with s.host.new_cache() as cache:
            s.forward(cache, s.ids)
            assert cache.pages[0].lease.family in s.host.pool.families
    assert (s.host.pool.buffer.data_ptr(), s.host.pool.buffer.numel()) == (address, size)


@pytest.mark.parametrize("does", ["select", "pass"])
def test_an_interrupt_gives_nothing_back_twice(
    setup: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    """It comes as soon as the first pages or slots were given back: of sequences left out, or of slots once shared."""
    s = setup("qwen3_next")
    with s.host.new_cache() as cache, cache.copy() as empty, s.host.routed():
        s.forward(cache, s.ids)
        other = empty if does == "select" else cache.copy()
        free = type(s.host.pool).free

        def interrupted(*args: Any, **kwargs: Any) -> None:
            free(*args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(type(s.host.pool), "free", interrupted)
            with pytest.raises(KeyboardInterrupt):
                cache.batch_select_indices(torch.tensor([0])) if does == "select" else s.forward(cache, s.ids[:, :1])
        if does == "pass":  # neither has written where the other reads
            assert torch.equal(s.forward(cache, s.ids[:, :1]), s.forward(other, s.ids[:, :1]))
        cache.release()
        other.release()
    assert used(s.host) == 0
