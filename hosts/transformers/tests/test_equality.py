"""Generating with the pooled cache gives the very logits that transformers' own cache gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

KINDS = ("llama", "gemma3")
PAGE_SIZES = (1, 3, 16, 64)


def assert_equal_logits(ours: Any, theirs: Any) -> None:
    assert len(ours.logits) == len(theirs.logits)
    for step, (a, b) in enumerate(zip(ours.logits, theirs.logits, strict=True)):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32)), f"step {step}"
    assert torch.equal(ours.sequences, theirs.sequences)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_beyond_the_window(setup: Callable[..., Any], kind: str, dtype: torch.dtype, page_size: int) -> None:
    s = setup(kind, dtype, page_size)
    dynamic, pooled = s.caches()
    with pooled:
        assert_equal_logits(s.generate(pooled), s.generate(dynamic))
    s.host.pool.check()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_beam_search(setup: Callable[..., Any], kind: str, page_size: int) -> None:
    s = setup(kind, torch.bfloat16, page_size)
    dynamic, pooled = s.caches()
    with pooled:
        ours = s.generate(pooled, num_beams=3)
        theirs = s.generate(dynamic, num_beams=3)
        assert_equal_logits(ours, theirs)
        assert len(set(theirs.beam_indices[0].tolist())) > 1, "the beams never changed places"
        s.host.pool.check()


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_from_a_seed(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=3)
    dynamic, pooled = s.caches()
    with pooled:
        assert_equal_logits(s.generate(pooled, do_sample=True), s.generate(dynamic, do_sample=True))


@pytest.mark.parametrize("page_size", [3, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_several_turns_with_one_cache(setup: Callable[..., Any], kind: str, page_size: int) -> None:
    s = setup(kind, page_size=page_size)
    dynamic, pooled = s.caches()
    ids, mask = s.ids, s.mask
    with pooled:
        for turn in range(3):
            theirs = s.generate(dynamic, ids, mask, max_new_tokens=6, eos_token_id=None)
            assert_equal_logits(s.generate(pooled, ids, mask, max_new_tokens=6, eos_token_id=None), theirs)
            more = torch.randint(3, 97, (len(ids), 4 + turn), generator=torch.Generator().manual_seed(turn))
            ids = torch.cat([theirs.sequences, more], 1)
            mask = torch.cat([mask, mask.new_ones(len(ids), ids.shape[1] - mask.shape[1])], 1)
        assert pooled.get_seq_length() == dynamic.get_seq_length() > 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_in_chunks(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, page_size=3)
    dynamic, pooled = s.caches()
    with pooled:
        options = {"prefill_chunk_size": 5, "max_new_tokens": 4}
        assert_equal_logits(s.generate(pooled, **options), s.generate(dynamic, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_looked_up_in_the_prompt(setup: Callable[..., Any], kind: str) -> None:
    """Assisted generation: several tokens a step, and a crop after each."""
    s = setup(kind, page_size=3, lengths=(23,))
    s.ids[0, 12:] = s.ids[0, 1:12]
    dynamic, pooled = s.caches()
    with pooled:
        options = {"prompt_lookup_num_tokens": 4, "max_new_tokens": 24, "eos_token_id": None}
        assert_equal_logits(s.generate(pooled, **options), s.generate(dynamic, **options))


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
