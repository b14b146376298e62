"""Window pages are given back as the window moves on, and the full-attention pages of the same tokens are not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

WINDOW = 8


def window_pages(length: int, page_size: int) -> int:
    """Pages that hold a token which the next one attends to: it sees the ``WINDOW - 1`` before it."""
    return len({token // page_size for token in range(max(length - (WINDOW - 1), 0), length)})


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
def test_pages_in_use_are_those_of_the_window(setup: Callable[..., Any], page_size: int) -> None:
    s = setup("gemma3", page_size=page_size, lengths=(23, 23))
    pool = s.host.pool
    with s.host.new_cache() as cache:
        length, evicted = 0, 0
        for tokens in (23, 1, 1, 5, 1, 30, 1, 1):
            s.forward(cache, torch.full((2, tokens), 5))
            length += tokens
            total = -(-length // page_size)
            assert pool["full"].used_pages == 2 * total
            assert pool["swa"].used_pages == 2 * window_pages(length, page_size)
            evicted = 2 * (total - window_pages(length, page_size))
            assert sum(page == 0 for handle in cache.pages for page in handle.ids) == 0
        assert evicted > 0 or page_size == 64
        pool.check()
    assert [pool[name].used_pages for name in pool] == [0, 0]


def test_evicted_tokens_translate_to_the_sink_in_the_window_only(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=4, lengths=(20,))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        (pages,) = cache.pages
        swa, full = (s.host.pool[name].physical_ids(pages.token_ids()).tensor for name in ("swa", "full"))
        # the next token attends to tokens 13 to 19: pages 0 to 2 are gone, page 3 holds token 13
        assert (swa < 4).tolist() == [True] * 12 + [False] * 8
        assert bool((full >= 4).all())


def test_nothing_is_evicted_before_the_window_is_full(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=1, lengths=(7,))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        assert s.host.pool["swa"].used_pages == 7
        s.forward(cache, s.ids[:, :1])
        assert s.host.pool["swa"].used_pages == 7
        assert s.host.pool["full"].used_pages == 8


def test_a_long_prompt_leaves_only_its_window(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=4, lengths=(200,))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        assert s.host.pool["swa"].used_pages == window_pages(200, 4) == 2


def test_recorded_tokens_stay_until_the_crop(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=1, lengths=(20,))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        assert s.host.pool["swa"].used_pages == 7
        cache.activate_past_recording()
        s.forward(cache, s.ids[:, :5])
        assert s.host.pool["swa"].used_pages == 12
        cache.crop(-3)
        assert s.host.pool["swa"].used_pages == 7
        assert [cache.get_seq_length(layer) for layer in range(4)] == [22] * 4
        s.host.pool.check()
