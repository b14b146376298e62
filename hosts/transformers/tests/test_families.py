"""Every family of caches: the logits of the pooled cache are those of transformers' own, bit for bit.

Where a model convolves, both sides run the reference's convolution: in the pool's slots, and in the states that
``DynamicCache`` keeps. ``test_convolution`` holds that convolution against others.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from statehal_transformers import PooledCache

ATTENTION = ("llama", "gemma3", "gpt_oss", "deepseek_v3", "mimo_v2_flash")
STATEFUL = ("mamba2", "qwen3_next", "kimi_linear", "falcon_h1")
FAMILIES = (*ATTENTION, "lfm2", *STATEFUL)
CHUNKED = tuple(kind for kind in FAMILIES if kind != "mamba2")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def assert_equal_logits(ours: Any, theirs: Any) -> None:
    assert len(ours.logits) == len(theirs.logits)
    for step, (a, b) in enumerate(zip(ours.logits, theirs.logits, strict=True)):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32)), f"step {step}"
    assert torch.equal(ours.sequences, theirs.sequences)


def assert_same(s: Any, **options: Any) -> Any:
    """Generate with both caches; the pool is whole afterwards, and empty. Returns transformers' result."""
    dynamic, pooled = s.caches()
    with pooled:
        ours, theirs = s.generate(pooled, **options), s.generate(dynamic, **options)
        assert_equal_logits(ours, theirs)
        s.host.pool.check()
    assert [s.host.pool[name].used_pages for name in s.host.pool] == [0] * len(s.host.plan.subpools)
    return theirs


def modes(s: Any) -> None:
    """Greedy beyond the window, sampling and beams."""
    assert_same(s, max_new_tokens=12)
    assert_same(s, max_new_tokens=8, do_sample=True, temperature=0.7)
    theirs = assert_same(s, max_new_tokens=8, num_beams=3)
    assert len({beam for row in theirs.beam_indices.tolist() for beam in row if beam >= 0}) > 1, "no beam moved"


def turns(s: Any) -> None:
    """Several turns with one cache: a prompt of several tokens after what is held."""
    dynamic, pooled = s.caches()
    ids, mask = s.ids, s.mask
    with pooled:
        for turn in range(3):
            theirs = s.generate(dynamic, ids, mask, max_new_tokens=4, eos_token_id=None)
            assert_equal_logits(s.generate(pooled, ids, mask, max_new_tokens=4, eos_token_id=None), theirs)
            more = torch.randint(3, 97, (len(ids), 1 + 2 * turn), generator=torch.Generator().manual_seed(turn))
            ids = torch.cat([theirs.sequences, more], 1)
            mask = torch.cat([mask, mask.new_ones(len(ids), ids.shape[1] - mask.shape[1])], 1)
        s.host.pool.check()


@pytest.mark.parametrize("kind", FAMILIES)
def test_greedy_sampling_and_beams(setup: Callable[..., Any], kind: str) -> None:
    modes(setup(kind, page_size=3))


@pytest.mark.parametrize("kind", FAMILIES)
def test_in_bfloat16(setup: Callable[..., Any], kind: str) -> None:
    assert_same(setup(kind, torch.bfloat16), max_new_tokens=12)


@pytest.mark.thorough
@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_combination(setup: Callable[..., Any], kind: str, dtype: str, page_size: int) -> None:
    s = setup(kind, DTYPES[dtype], page_size)
    modes(s)
    turns(s)
    if kind in CHUNKED:
        assert_same(s, max_new_tokens=4, prefill_chunk_size=5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_several_turns_with_one_cache(setup: Callable[..., Any], kind: str) -> None:
    turns(setup(kind, page_size=3))


@pytest.mark.parametrize("kind", CHUNKED)
def test_a_prompt_in_chunks(setup: Callable[..., Any], kind: str) -> None:
    assert_same(setup(kind, page_size=3), max_new_tokens=4, prefill_chunk_size=5)


def test_without_attention_transformers_itself_takes_no_chunks(setup: Callable[..., Any]) -> None:
    s = setup("mamba2")
    for cache in s.caches():
        with pytest.raises(ValueError, match=r"`get_seq_length` can only be called|prefill chunking without a cache"):
            s.generate(cache, prefill_chunk_size=5)


def test_one_host_serves_many_caches_and_batches(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=3)
    expected = s.generate(s.caches()[0])
    one = s.generate(s.caches()[0], s.ids[2:], s.mask[2:])
    with s.host.new_cache() as first, s.host.new_cache() as second:
        assert_equal_logits(s.generate(first, s.ids[2:], s.mask[2:]), one)
        assert_equal_logits(s.generate(second), expected)
        first.reset()
        assert_equal_logits(s.generate(first), expected)
        s.host.pool.check()


@pytest.mark.parametrize("kind", FAMILIES)
def test_filling_the_pool_with_nan_makes_the_logits_nan(setup: Callable[..., Any], kind: str) -> None:
    """Every sub-pool apart, so that of a hybrid's state neither half is kept elsewhere."""
    s = setup(kind)
    token = torch.full((3, 1), 5)
    for name in s.host.pool:
        with s.host.new_cache() as cache:
            s.forward(cache, s.ids)
            assert not s.forward(cache, token).isnan().any()
            poison(s, cache, name)
            assert s.forward(cache, token).isnan().all(), name


def poison(s: Any, cache: PooledCache, name: str) -> None:
    """Fill everything that the cache holds in a sub-pool with NaN, but for the cursor."""
    subpool = s.host.pool[name]
    held = cache.slots if subpool.spec.kind == "slots" else cache.pages
    for handle in held:
        pages = subpool.physical_ids(handle.page_ids()).tensor
        for field in subpool.layout.fields:
            if field.name != "cursor":
                for (layer,) in field.layers:
                    subpool.view(field.name, layer, "page")[pages] = float("nan")
