"""Nothing that has seen a rejected draft has a name in a store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from prefix_runs import N, farthest, fresh, opened, prompt, run

from statehal.portability.store import block_keys

DRAFTS = 4


def named(directory: Path) -> set[str]:
    """Keys of all blocks of a store, by the names of its files."""
    return {path.name.split(".")[0] for path in directory.rglob("*.safetensors")}


def own_keys(sequences: torch.Tensor) -> set[str]:
    return {key for row in sequences.tolist() for key in block_keys(row, N)}


def note_rejected(cache: Any, rejected: list[int]) -> None:
    """Have every crop of a cache noted."""
    crop = cache.crop

    def noting(tokens: int) -> None:
        rejected.append(-tokens)
        crop(tokens)

    cache.crop = noting


@pytest.mark.parametrize("kind", ["llama", "gemma3", "lfm2"])
def test_only_accepted_tokens_are_stored(setup: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    s = setup(kind, page_size=3, lengths=(23,), draft_tokens=DRAFTS, requests=3 * DRAFTS)
    rejected: list[int] = []
    finals = []
    with opened(s.host, tmp_path) as prefixes:
        for seed in range(3):
            ids = prompt(2 * N + 3, seed)
            ids = torch.cat([ids, ids[:, : 2 + seed % 6]], 1)
            for reused in (0, 2 * N):  # the second time from what the first one stored
                with s.host.routed(), prefixes.cache(ids) as cache:
                    assert cache.reuse.reused >= reused
                    note_rejected(cache, rejected)
                    options = {"prompt_lookup_num_tokens": DRAFTS, "max_matching_ngram_size": 1 + seed % 2}
                    output = s.generate(
                        cache, ids, torch.ones_like(ids), max_new_tokens=2 * N, eos_token_id=None, **options
                    )
                    assert cache.length < output.sequences.shape[1]
                prefixes.wait()
                assert torch.equal(output.sequences, fresh(s, ids, max_new_tokens=2 * N).sequences)
            finals.append(output.sequences)
        assert {0, DRAFTS} < set(rejected), "drafts were kept, rejected, and kept in part"
        stored = named(tmp_path)
        assert stored
        assert stored <= set().union(*map(own_keys, finals)), "a key names tokens that no sequence has"
        for sequences in finals:
            again = torch.cat([sequences, prompt(1)], 1)
            output, cache = run(s, prefixes, again, max_new_tokens=2)
            assert cache.reuse.reused >= 2 * N
            assert farthest(output, fresh(s, again, max_new_tokens=2)) <= 1e-5


def test_a_crop_takes_back_what_comes_after_it(setup: Callable[..., Any], tmp_path: Path) -> None:
    """Rounds that end on, before and after a block's end, with rejected tokens that would have completed it."""
    s = setup("lfm2", draft_tokens=DRAFTS, requests=3 * DRAFTS)
    ids = prompt(2 * N)
    wrong = (ids + 1) % 97
    with opened(s.host, tmp_path) as prefixes:
        with s.host.routed(), prefixes.cache(ids[:, :N]) as cache:
            recording: Any = cache
            recording.activate_past_recording()
            s.forward(cache, ids[:, : N - 2])
            cache.crop(0)
            s.forward(cache, torch.cat([ids[:, N - 2 : N - 1], wrong[:, N - 1 : N + 2]], 1))  # drafts past the end
            cache.crop(-3)
            s.forward(cache, torch.cat([ids[:, N - 1 : N], wrong[:, N : N + 2]], 1))
            cache.crop(-2)  # exactly at the end of a block
            s.forward(cache, torch.cat([ids[:, N : N + 3], wrong[:, N + 3 :][:, :2]], 1))
            cache.crop(-2)
        prefixes.wait()
        assert named(tmp_path) == own_keys(ids[:, :N])
        again = ids[:, : N + 1]
        output, cache = run(s, prefixes, again, max_new_tokens=3)
        assert cache.reuse.reused == N
        assert farthest(output, fresh(s, again, max_new_tokens=3)) <= 1e-5


def test_tokens_after_a_crop_of_stored_ones_have_their_own_names(setup: Callable[..., Any], tmp_path: Path) -> None:
    s = setup("llama")
    first, second = prompt(2 * N + 1), torch.cat([prompt(2 * N + 1)[:, : N + 4], prompt(N, seed=9)], 1)
    with opened(s.host, tmp_path) as prefixes:
        with prefixes.cache(first) as cache:
            assert cache.length == 2 * N
            cache.crop(-(N - 4))
            cache.prefill(torch.cat([second, prompt(1)], 1))
        prefixes.wait()
        assert named(tmp_path) == own_keys(first) | own_keys(second)
        for ids in (first, second):
            output, cache = run(s, prefixes, ids, max_new_tokens=2)
            assert cache.reuse.reused == (ids.shape[1] - 1) // N * N
            assert farthest(output, fresh(s, ids, max_new_tokens=2)) <= 1e-5
