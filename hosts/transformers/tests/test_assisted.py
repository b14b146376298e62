"""Assisted generation by prompt lookup: drafts are verified, and what is rejected leaves no trace."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from statehal.errors import Unsupported

FAMILIES = ("llama", "gemma3", "gpt_oss", "deepseek_v3", "mimo_v2_flash", "lfm2")
STATEFUL = ("mamba2", "qwen3_next", "kimi_linear", "falcon_h1")
DRAFTS = 4


def watch(cache: Any) -> Counter[str]:
    """Count, of every pass with drafts, whether all, some or none of them were kept."""
    outcomes: Counter[str] = Counter()
    crop, held = cache.crop, [0]

    def counting(tokens: int) -> None:
        new = cache.get_seq_length() - held[0]
        drafts, rejected = new - 1, -tokens
        if held[0] and drafts:  # the first pass also brings the prompt
            outcomes["all" if not rejected else "none" if rejected == drafts else "some"] += 1
        crop(tokens)
        held[0] = cache.get_seq_length()

    cache.crop = counting
    return outcomes


@pytest.mark.parametrize("kind", FAMILIES)
def test_drafts_looked_up_in_the_prompt(setup: Callable[..., Any], kind: str) -> None:
    """Twelve runs: greedy's tokens, and bit for bit the logits of transformers' own cache in the same rounds."""
    s = setup(kind, page_size=3, lengths=(23,), draft_tokens=DRAFTS, requests=DRAFTS + 1)
    outcomes: Counter[str] = Counter()
    for seed in range(12):
        ids = torch.randint(3, 97, (1, 11), generator=torch.Generator().manual_seed(seed))
        ids = torch.cat([ids, ids[:, : 2 + seed % 6]], 1)
        settings: dict[str, Any] = {"max_new_tokens": 20, "eos_token_id": None}
        options = settings | {"prompt_lookup_num_tokens": DRAFTS, "max_matching_ngram_size": 1 + seed % 2}
        dynamic, pooled = s.caches()
        with pooled:
            counts = watch(pooled)
            ours = s.generate(pooled, ids, torch.ones_like(ids), **options)
            outcomes += counts
            theirs = s.generate(dynamic, ids, torch.ones_like(ids), **options)
            s.host.pool.check()
        assert len(ours.logits) == len(theirs.logits)
        for a, b in zip(ours.logits, theirs.logits, strict=True):
            assert torch.equal(a.view(torch.int32), b.view(torch.int32))
        greedy = s.generate(s.caches()[0], ids, torch.ones_like(ids), **settings)
        assert torch.equal(ours.sequences, greedy.sequences)
    assert {"all", "some", "none"} <= outcomes.keys(), outcomes


@pytest.mark.parametrize("kind", STATEFUL)
def test_transformers_refuses_drafts_for_models_with_a_recurrent_state(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, lengths=(23,))
    with s.host.new_cache() as cache, pytest.raises(ValueError, match="stateful"):
        s.generate(cache, prompt_lookup_num_tokens=DRAFTS)


def test_verify_and_commit_go_back_by_any_number_of_tokens(setup: Callable[..., Any]) -> None:
    """Random rounds of lfm2, some of two passes before a crop, beside the same rounds with transformers' own cache."""
    s = setup("lfm2", page_size=3, lengths=(9, 9), draft_tokens=DRAFTS, requests=2 * DRAFTS + 2)
    generator = torch.Generator().manual_seed(5)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    for _ in range(4):
        dynamic, pooled = s.caches()
        with pooled:
            for cache in (dynamic, pooled):
                cache.activate_past_recording()
            for turn in range(10):
                count = 9 if not turn else number(1, DRAFTS + 1)
                for _ in range(number(1, 2)):
                    new = torch.randint(3, 97, (2, count), generator=generator)
                    assert torch.equal(s.forward(pooled, new), s.forward(dynamic, new))
                rejected = number(0, min(count - 1, DRAFTS))
                for cache in (dynamic, pooled):
                    cache.crop(-rejected)
                assert pooled.get_seq_length() == dynamic.get_seq_length()
                s.host.pool.check()


def test_nothing_is_copied_and_snapshots_live_as_long_as_they_may_be_needed(setup: Callable[..., Any]) -> None:
    s = setup("lfm2", page_size=4, lengths=(12,), draft_tokens=DRAFTS, requests=DRAFTS + 1)
    conv = s.host.pool["conv"]
    with s.host.new_cache() as cache:
        cache.activate_past_recording()
        s.forward(cache, s.ids)
        assert conv.used_pages == 1 + DRAFTS
        slots = cache.slots[0].ids
        cache.crop(-2)
        assert conv.used_pages == 1
        assert cache.slots[0].ids != slots, "the snapshot's slot takes the place, instead of a copy"
        slots = cache.slots[0].ids
        s.forward(cache, s.ids[:, :5])
        cache.crop(-3)
        assert (conv.used_pages, cache.slots[0].ids) == (1, slots)


def test_what_cannot_go_back_says_so(setup: Callable[..., Any]) -> None:
    s = setup("lfm2", lengths=(12,), draft_tokens=2)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        with pytest.raises(Unsupported, match=r"layers of 'conv' can go back by 0 tokens now.*draft_tokens=1"):
            cache.crop(-1)
        cache.activate_past_recording()
        s.forward(cache, s.ids[:, :3])
        with pytest.raises(Unsupported, match=r"crop\(-3\): layers of 'conv' can go back by 2 tokens now"):
            cache.crop(-3)
        cache.crop(-2)
        assert cache.get_seq_length() == 13
    s = setup("qwen3_next", lengths=(12,))
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        with pytest.raises(Unsupported, match=r"layers of 'conv' keep a recurrent state, which cannot go back"):
            cache.crop(-1)
        cache.crop(0)
        assert (cache.is_croppable, cache.get_seq_length()) == (False, 12)
