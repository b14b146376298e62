"""A second process does not compute what the first one stored, and its logits are those of a fresh computation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prefix_runs import N, farthest, fresh, opened, prompt, run, same_bits

FAMILIES = (
    "llama",
    "gemma3",
    "gpt_oss",
    "deepseek_v3",
    "mimo_v2_flash",
    "lfm2",
    "mamba2",
    "qwen3_next",
    "kimi_linear",
    "falcon_h1",
)


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_one_host_stored_another_does_not_compute(setup: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    """Two prompts in one batch, then the same and a longer one, in pages of another size: all but the last block."""
    first, second = setup(kind, page_size=4, requests=8), setup(kind, page_size=3, requests=8)
    ids = prompt(3 * N + 5, batch=2)
    with opened(first.host, tmp_path) as prefixes:
        written, cache = run(first, prefixes, ids, max_new_tokens=N)
        assert cache.reuse.reused == 0
        assert "absent" in cache.reuse.why
    with opened(second.host, tmp_path) as prefixes:
        read, cache = run(second, prefixes, ids, max_new_tokens=N)
        prefixes.wait()
        assert (cache.reuse.reused, cache.reuse.why) == (3 * N, "")
        assert same_bits(read, written)
        # what was generated is there, too, but for its newest token, which nobody has read
        more = torch.cat([written.sequences, prompt(2, seed=1, batch=2)], 1)
        longer, cache = run(second, prefixes, more, max_new_tokens=3)
        assert cache.reuse.reused == 4 * N
        assert prefixes.counts()["prompts"] == {"asked": 2 * (3 * N + 5) + 2 * (4 * N + 7), "reused": 2 * 7 * N}
    for ours, asked, steps in ((written, ids, N), (longer, more, 3)):
        theirs = fresh(first, asked, max_new_tokens=steps)
        assert farthest(ours, theirs) <= 1e-5
        assert torch.equal(ours.sequences, theirs.sequences)


REQUESTS = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 70), st.integers(1, 20)), min_size=2, max_size=5)
"""Of each request: tokens in common with the others, tokens in all, tokens to generate."""


@pytest.mark.parametrize("kind", ["gemma3", "qwen3_next"])
@settings(max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=REQUESTS)
def test_a_request_reuses_the_longest_beginning_that_any_had_read(
    setup: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory, kind: str, requests: list[tuple[int, int, int]]
) -> None:
    """By counting common tokens of lists: whole blocks that an earlier request had read, and not the last token."""
    s, common = setup(kind, page_size=5), prompt(70)
    had_read: list[list[int]] = []
    with opened(s.host, tmp_path_factory.mktemp("store")) as prefixes:
        for number, (shared, length, new) in enumerate(requests):
            ids = torch.cat([common[:, :shared], prompt(length, seed=number + 1)], 1)[:, :length]
            output, cache = run(s, prefixes, ids, max_new_tokens=new)
            prefixes.wait()
            most = max((in_common(ids[0].tolist(), other) for other in had_read), default=0)
            assert cache.reuse.reused == min(most, length - 1) // N * N
            assert farthest(output, fresh(s, ids, max_new_tokens=new)) <= 1e-5
            had_read.append(output.sequences[0, :-1].tolist())


def in_common(a: list[int], b: list[int]) -> int:
    """How many tokens two lists begin with in common."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("kind", ["gemma3", "mamba2", "qwen3_next"])
def test_the_last_token_of_a_prompt_is_always_computed(setup: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    """Tails of one token, prompts that end where a block ends, and shorter ones of which a window was evicted since."""
    s = setup(kind)
    ids = prompt(3 * N + 1)
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, ids, max_new_tokens=1)
        prefixes.wait()
        lengths = (N - 1, N, N + 1, 2 * N, 2 * N + 1, 3 * N, 3 * N + 1)
        for length, reused in zip(lengths, (0, 0, N, N, 2 * N, 2 * N, 3 * N), strict=True):
            output, cache = run(s, prefixes, ids[:, :length], max_new_tokens=3)
            assert cache.reuse.reused == reused, length
            assert farthest(output, fresh(s, ids[:, :length], max_new_tokens=3)) <= 1e-5, length


def test_a_batch_begins_where_all_of_its_prompts_can(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("qwen3_next")
    a, b = prompt(3 * N + 1), prompt(3 * N + 1, seed=1)
    with opened(s.host, tmp_path) as prefixes:
        run(s, prefixes, a, max_new_tokens=1)
        run(s, prefixes, b[:, : 2 * N + 1], max_new_tokens=1)
        prefixes.wait()
        output, cache = run(s, prefixes, torch.cat([a, b]), max_new_tokens=3)
        assert cache.reuse.reused == 2 * N
        assert "after 32 tokens, 'full' is 'layers0-1.heads0of2': absent" in cache.reuse.why
        assert farthest(output, fresh(s, torch.cat([a, b]), max_new_tokens=3)) <= 1e-5


@pytest.mark.parametrize("kind", ["lfm2", "kimi_linear"])
def test_state_exists_at_the_ends_of_a_requests_own_blocks(
    setup: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    """A second turn begins off the grid of blocks; its prefill still stops at multiples from the first token."""
    s = setup(kind)
    ids = prompt(4 * N + 3, batch=2)
    with opened(s.host, tmp_path) as prefixes:
        with s.host.routed(), prefixes.cache(ids[:, : N + 5]) as cache:
            s.forward(cache, ids[:, N : N + 5])
            assert cache.length == N + 5
            cache.prefill(ids)
            assert cache.length == 4 * N
            output = s.generate(cache, ids, torch.ones_like(ids), max_new_tokens=2, eos_token_id=None)
            assert farthest(output, fresh(s, ids, max_new_tokens=2)) <= 1e-5
        prefixes.wait()
        for blocks in (1, 2, 3, 4):
            output, cache = run(s, prefixes, ids[:, : blocks * N + 1], max_new_tokens=2)
            assert (cache.reuse.reused, cache.reuse.why) == (blocks * N, "")
        assert farthest(output, fresh(s, ids[:, : 4 * N + 1], max_new_tokens=2)) <= 1e-5


@pytest.mark.parametrize(("kind", "reused"), [("gemma3", 2 * N), ("lfm2", 0), ("mamba2", 0), ("qwen3_next", 0)])
def test_a_pass_over_the_end_of_a_block_leaves_no_state_there(
    setup: Callable[..., Any], tmp_path: Path, kind: str, reused: int
) -> None:
    """A state has read all of a pass; its name would be that of fewer tokens. Spans can be cut anywhere."""
    s = setup(kind)
    ids = prompt(2 * N + 3)
    with opened(s.host, tmp_path) as prefixes:
        with s.host.routed(), prefixes.cache(ids[:, :1]) as cache:
            s.forward(cache, ids)
        prefixes.wait()
        output, cache = run(s, prefixes, ids, max_new_tokens=3)
        assert cache.reuse.reused == reused
        assert reused or "'conv' is " in cache.reuse.why
        assert farthest(output, fresh(s, ids, max_new_tokens=3)) <= 1e-5


@pytest.mark.parametrize("kind", ["gemma3", "lfm2", "mamba2"])
def test_copies_and_beams_are_stored_by_their_own_tokens(setup: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    s = setup(kind, requests=16)
    ids = prompt(N + 3)
    with opened(s.host, tmp_path) as prefixes:
        with s.host.routed(), prefixes.cache(ids) as cache, cache.copy() as other:
            for one, seed in ((cache, 1), (other, 2)):
                one.prefill(torch.cat([ids, prompt(N, seed)], 1))
        prefixes.wait()
        with s.host.routed(), prefixes.cache(ids) as cache:
            assert cache.reuse.reused == N
            cache.batch_repeat_interleave(3)
            beams = s.generate(
                cache,
                ids,
                torch.ones_like(ids),
                num_beams=3,
                num_return_sequences=3,
                max_new_tokens=2 * N,
                eos_token_id=None,
            )
        prefixes.wait()
        for tokens in (*beams.sequences, *(torch.cat([ids, prompt(N, seed)], 1)[0] for seed in (1, 2))):
            longest = (len(tokens) - 1) // N * N
            again = tokens[None, : longest + 1]
            output, cache = run(s, prefixes, again, max_new_tokens=1)
            assert cache.reuse.reused == longest
            assert farthest(output, fresh(s, again, max_new_tokens=1)) <= 1e-5


def test_inference_mode_and_reading_pages(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("gemma3")
    ids = prompt(2 * N + 3)
    with opened(s.host, tmp_path) as prefixes, torch.inference_mode(), s.host.reading_pages():
        for reused in (0, 2 * N):
            output, cache = run(s, prefixes, ids, max_new_tokens=N)
            assert cache.reuse.reused == reused
            prefixes.wait()
    assert farthest(output, fresh(s, ids, max_new_tokens=N)) <= 1e-5


def test_adapters_salts_models_and_block_sizes_are_apart(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    ids = prompt(2 * N + 1)
    for options in ({}, {"model": "other"}, {"revision": "2"}, {"object_tokens": 8}):
        with opened(s.host, tmp_path, **options) as prefixes:
            for named in ({}, {"adapter": "lora@1"}, {"salt": b"tenant"}):
                for reused in (0, 2 * N):
                    with prefixes.cache(ids, **named) as cache:
                        assert cache.reuse.reused == reused, (options, named)
                    prefixes.wait()
