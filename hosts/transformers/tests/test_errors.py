"""Misuse of a cache is refused with a text that names what is wrong, and changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from statehal.errors import ArgumentError, Unsupported


def states(batch: int = 3, heads: int = 3, tokens: int = 1, dim: int = 8, dtype: torch.dtype = torch.float32) -> Any:
    return torch.zeros(batch, heads, tokens, dim, dtype=dtype)


@pytest.mark.parametrize(
    ("k", "v", "text"),
    [
        (states(heads=2), states(), r"layer 0 gave keys of 2 heads x 8 in torch.float32"),
        (states(), states(dim=16), r"layer 0 gave values of 3 heads x 16 in torch.float32"),
        (
            states(dtype=torch.bfloat16),
            states(dtype=torch.bfloat16),
            r"layer 0 gave keys of 3 heads x 8 in torch.bfloat16",
        ),
    ],
)
def test_rows_that_do_not_fit_the_plan(setup: Callable[..., Any], k: Any, v: Any, text: str) -> None:
    s = setup("llama")
    with s.host.new_cache() as cache:
        with pytest.raises(
            ArgumentError, match=text + r", but the pool was planned for 3 heads x 8 in torch.float32 \(fix"
        ):
            cache.update(k, v, 0)
        assert (cache.get_seq_length(), cache.batch_size) == (0, -1)
        assert s.host.pool["full"].used_pages == 0


def test_gradients(setup: Callable[..., Any]) -> None:
    s = setup("llama")
    with s.host.new_cache() as cache:
        with pytest.raises(ArgumentError, match=r"layer 0 gave keys that require gradients.*\(fix: run the model"):
            s.model(s.ids, **cache.as_argument())
        assert s.host.pool["full"].used_pages == 0


def test_another_batch_size(setup: Callable[..., Any]) -> None:
    s = setup("llama")
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        with pytest.raises(ArgumentError, match=r"keys of 2 sequences were given to a cache that holds 3 \(fix"):
            s.forward(cache, s.ids[:2])
        assert cache.get_seq_length() == 23
        s.forward(cache, s.ids[:, :1])


def test_another_batch_size_within_a_step(setup: Callable[..., Any]) -> None:
    s = setup("llama")
    with s.host.new_cache() as cache:
        cache.update(states(), states(), 0)
        with pytest.raises(ArgumentError, match=r"keys of 2 sequences were given to a cache that holds 3"):
            cache.update(states(batch=2), states(batch=2), 1)
        cache.update(states(), states(), 1)


def test_a_pass_that_stopped_between_layers(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=1)
    token = s.ids[:, :1]
    with s.host.new_cache() as alone:
        s.forward(alone, s.ids)
        expected = s.forward(alone, token)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        pages = [handle.ids for handle in cache.pages]
        for layer in (0, 1):
            cache.update(torch.ones(3, 2, 2, 16), torch.ones(3, 2, 2, 16), layer)
        with pytest.raises(
            ArgumentError, match=r"layer 2 holds 23 tokens and the cache 25: .*\(fix: cache.crop\(-2\) or"
        ):
            cache.update(torch.ones(3, 2, 1, 16), torch.ones(3, 2, 1, 16), 2)
        held = [handle.ids for handle in cache.pages]
        with pytest.raises(ArgumentError, match=r"a forward pass stopped between layers"):
            s.forward(cache, token)  # a further pass takes no pages before it is refused
        assert [handle.ids for handle in cache.pages] == held
        cache.crop(-2)
        assert [handle.ids for handle in cache.pages] == pages
        assert torch.equal(s.forward(cache, token), expected)


def test_after_a_crop_the_other_layers_may_catch_up(setup: Callable[..., Any]) -> None:
    """Two layers take three tokens, a crop leaves two of them, the other layers then take two: all agree again."""
    s = setup("gemma3", page_size=1, lengths=(5, 5))
    new = torch.randn(2, 2, 3, 16)
    dynamic, cache = s.caches()
    with cache:
        for kv in (dynamic, cache):
            s.forward(kv, s.ids)
        for layer in (0, 1):
            cache.update(new, new, layer)
        cache.crop(-1)
        for layer in range(4):
            expected = dynamic.update(new[:, :, :2], new[:, :, :2], layer)
            if layer > 1:
                assert torch.equal(cache.update(new[:, :, :2], new[:, :, :2], layer)[0], expected[0])
        assert torch.equal(s.forward(cache, s.ids[:, :1]), s.forward(dynamic, s.ids[:, :1]))


def test_a_crop_past_the_window(setup: Callable[..., Any]) -> None:
    s = setup("gemma3")
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        with pytest.raises(
            Unsupported, match=r"crop\(-1\) to 22 tokens: layers of 'swa' then attend from token 15 on, but"
        ):
            cache.crop(-1)
        with pytest.raises(ArgumentError, match=r"crop\(5\): expected how many tokens to remove as a negative number"):
            cache.crop(5)
        assert [cache.get_seq_length(layer) for layer in range(4)] == [23] * 4
        cache.crop(0)
        s.forward(cache, s.ids[:, :1])


@pytest.mark.parametrize("method", ["reset", "reorder_cache", "crop", "batch_repeat_interleave", "offload"])
def test_one_layer_alone_is_not_changed(setup: Callable[..., Any], method: str) -> None:
    s = setup("llama")
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        with pytest.raises(Unsupported, match=r"all layers share their pages \(fix: call the cache's method\)"):
            getattr(cache.layers[0], method)()


def test_what_transformers_asks_of_a_cache(setup: Callable[..., Any]) -> None:
    s = setup("gemma3")
    with s.host.new_cache() as cache:
        assert (cache.is_compileable, cache.is_croppable, cache.is_initialized) == (False, True, True)
        assert cache.is_sliding == [True, False, True, True]
        assert [cache.get_max_length(layer) for layer in range(4)] == [8, -1, 8, 8]
        assert len(cache) == 4
