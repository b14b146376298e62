"""Attention that reads the pool itself, for families whose attention transformers lets be chosen."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from statehal.errors import Unsupported
from statehal_transformers import paged_attention
from statehal_transformers.groups import LayerGroup

FAMILIES = ("llama", "gemma3", "gpt_oss", "mimo_v2_flash", "lfm2", "qwen3_next", "falcon_h1")


def watch_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of every read, by whatever method."""
    read: list[int] = []
    load = LayerGroup.load

    def counting(group: LayerGroup, layer: int, ids: Any, first: int, last: int) -> Any:
        read.append(last - first)
        return load(group, layer, ids, first, last)

    monkeypatch.setattr(LayerGroup, "load", counting)
    return read


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_logits_agree(setup: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 1e-5 in float32, over several chunks of rows, windows that are full, and left padding."""
    monkeypatch.setattr(paged_attention, "CHUNK", 7)
    s = setup(kind, page_size=3)
    dynamic, pooled = s.caches()
    options: dict[str, Any] = {"max_new_tokens": 8, "eos_token_id": None}
    with pooled, s.host.reading_pages():
        read = watch_reads(monkeypatch)
        ours = s.generate(pooled, **options)
    assert 0 < max(read) <= 7
    theirs = s.generate(dynamic, **options)
    for a, b in zip(ours.logits, theirs.logits, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert torch.equal(ours.sequences, theirs.sequences)


def test_drafts_and_several_turns(setup: Callable[..., Any]) -> None:
    s = setup("gemma3", page_size=3, lengths=(23,))
    s.ids[0, 12:] = s.ids[0, 1:12]
    dynamic, pooled = s.caches()
    options = {"prompt_lookup_num_tokens": 4, "max_new_tokens": 24, "eos_token_id": None}
    with pooled:
        with s.host.reading_pages():
            ours = s.generate(pooled, **options)
        theirs = s.generate(dynamic, **options)
        for a, b in zip(ours.logits, theirs.logits, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_the_models_own_attention_comes_back(setup: Callable[..., Any]) -> None:
    s = setup("llama", lengths=(5,))
    own = s.model.config._attn_implementation
    with suppress(ZeroDivisionError), s.host.reading_pages():
        assert s.model.config._attn_implementation == "statehal_pages"
        raise ZeroDivisionError
    assert s.model.config._attn_implementation == own


@pytest.mark.parametrize("kind", ["deepseek_v3", "kimi_linear"])
def test_latent_rows_have_no_seam(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind, lengths=(5,))
    with pytest.raises(Unsupported, match=r"layers of 'latent' keep latent rows.*\(fix: run the model without reading"):
        s.host.reading_pages()
    assert s.model.config._attn_implementation != "statehal_pages"


def test_other_caches_are_refused(setup: Callable[..., Any]) -> None:
    s = setup("llama", lengths=(5,))
    with s.host.reading_pages(), pytest.raises(Unsupported, match="reads a pool, and was given tensors"):
        s.forward(s.caches()[0], s.ids)
