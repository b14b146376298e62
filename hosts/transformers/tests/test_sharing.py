"""Sequences share pages: beams, copies and repeated batches hold the same ones until somebody writes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

ATTENTION = ("llama", "gemma3", "gpt_oss", "deepseek_v3", "mimo_v2_flash")
CONVOLVING = ("lfm2", "mamba2", "qwen3_next", "kimi_linear", "falcon_h1")


def used(s: Any) -> dict[str, int]:
    return {name: s.host.pool[name].used_pages for name in s.host.pool}


def test_reordering_takes_no_page_and_the_next_write_copies_the_tail(setup: Callable[..., Any]) -> None:
    s = setup("llama", page_size=4, lengths=(10, 10))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        assert used(s) == {"full": 6}
        cache.reorder_cache(torch.tensor([1, 1]))
        assert used(s) == {"full": 3}
        assert cache.pages[0].ids == cache.pages[1].ids
        s.forward(cache, s.ids[:, :1])
        assert used(s) == {"full": 4}  # both full pages are shared, each beam has a third page of its own
        assert cache.pages[0].ids[:2] == cache.pages[1].ids[:2]
        s.host.pool.check()


def test_whole_pages_are_never_copied(setup: Callable[..., Any]) -> None:
    s = setup("llama", page_size=5, lengths=(10, 10))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        cache.reorder_cache(torch.tensor([0, 0]))
        s.forward(cache, s.ids[:, :1])
        assert used(s) == {"full": 2 + 2}


@pytest.mark.parametrize("kind", [*ATTENTION, *CONVOLVING])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda cache: cache.copy()], ids=["deepcopy", "copy"])
def test_copies_go_on_apart_from_each_other(
    setup: Callable[..., Any], kind: str, duplicate: Callable[..., Any]
) -> None:
    """Two caches that share all they hold: neither sees what the other takes in."""
    s = setup(kind, page_size=4, lengths=(10, 10))
    a, b = torch.full((2, 1), 7), torch.full((2, 3), 9)
    with s.host.new_cache() as alone:
        s.forward(alone, s.ids)
        s.forward(alone, a)
        expected = s.forward(alone, b)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        before = used(s)
        other = duplicate(cache)
        assert used(s) == before
        s.forward(other, b)
        s.forward(cache, a)
        s.forward(other, a)
        assert torch.equal(s.forward(cache, b), expected)
        s.host.pool.check()
        cache.release()
        s.forward(other, a)
        other.release()
    s.host.pool.check()
    assert set(used(s).values()) == {0}


def test_a_copy_goes_on_recording(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=4, lengths=(12,))
    with s.host.new_cache() as cache:
        cache.activate_past_recording()
        s.forward(cache, s.ids)
        with cache.copy() as other:
            assert other.is_recording_past(0)
            expected = s.forward(cache, s.ids[:, :2])
            s.forward(other, s.ids[:, :1])
            other.crop(-1)
            assert torch.equal(s.forward(other, s.ids[:, :2]), expected)


def test_a_crop_into_shared_pages_does_not_let_writes_through(setup: Callable[..., Any]) -> None:
    """The tail after the crop is a page that was full when it was shared."""
    s = setup("llama", page_size=4, lengths=(12,))
    token = torch.full((1, 1), 7)
    with s.host.new_cache() as alone:
        s.forward(alone, s.ids)
        expected = s.forward(alone, token)
    with s.host.new_cache() as cache, s.host.new_cache() as _:
        s.forward(cache, s.ids)
        other = cache.copy()
        other.crop(-3)
        s.forward(other, torch.full((1, 3), 50))
        assert torch.equal(s.forward(cache, token), expected)
        other.release()
        s.host.pool.check()
