"""The demo with a store: the second run does not compute what the first one did, and no logit differs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from statehal_transformers.demo.__main__ import main
from statehal_transformers.demo.long_prompts import LONG_PROMPTS, TEXT
from statehal_transformers.demo.stored import weights_digest
from statehal_transformers.demo.tiny import tiny_model

SMALL = ["--max-new-tokens", "4", "--object-tokens", "16", "--backend", "reference"]


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("family", ["gemma3", "mamba2", "qwen3_next"])
def test_a_second_run_computes_the_tails_only(tmp_path: Path, family: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "A prompt that is long enough for several blocks of sixteen bytes, "
    first, second = text + "and its end.", text + "but with another end, of more bytes."
    arguments = [*SMALL, "--store", str(tmp_path / "store"), "--family", family, "--prompt", first, "--prompt", second]
    asked = len(first) + len(second)
    for reused in ((0, 64), (64, 96)):  # the second prompt finds the beginning of the first one; whole blocks of both
        code, found = run_json(arguments, capsys)
        assert (code, found["verdict"], found["comparison"]["logits"]) == (0, "equal", 2 * 4 * 258)
        store = found["store"]
        assert [one["reused"] for one in store["prompts"]] == list(reused)
        assert (store["asked"], store["reused"], store["object_tokens"]) == (asked, sum(reused), 16)
        assert store["counts"]["prompts"] == {"asked": asked, "reused": sum(reused)}
    assert [one["why"] for one in store["prompts"]] == ["", ""]


def test_the_report_says_what_did_not_have_to_be_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    shared = len(" ".join(TEXT.split())) // 16 * 16
    whole = sum((len(prompt) - 1) // 16 * 16 for prompt in LONG_PROMPTS)
    asked = sum(map(len, LONG_PROMPTS))
    for reused in (shared, whole):  # the second question finds the text of the first one
        assert main([*SMALL, "--store", str(tmp_path), "--family", "llama"]) == 0
        shown = capsys.readouterr().out
        assert f"store: {reused} of {asked} prompt tokens did not have to be computed ({tmp_path})" in shown
        assert "agree bit for bit between the pooled cache and transformers' own, in the same passes" in shown
        assert f" ... {LONG_PROMPTS[0][-100:]} ({len(LONG_PROMPTS[0])} tokens)" in shown


def test_other_weights_find_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*SMALL, "--store", str(tmp_path), "--family", "llama", "--prompt", 3 * "Twenty-two characters."]
    for dtype in ("float32", "bfloat16"):
        assert run_json([*arguments, "--dtype", dtype], capsys)[1]["store"]["reused"] == 0
    assert run_json(arguments, capsys)[1]["store"]["reused"] == 64


def test_the_same_weights_under_another_config_are_others() -> None:
    """Their keys and values are, which no tensor says."""
    model, again, other = (tiny_model("llama", torch.float32, "cpu") for _ in range(3))
    other.config.rms_norm_eps *= 10
    assert weights_digest(model) == weights_digest(again) != weights_digest(other)


def test_a_store_that_cannot_be_opened_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a store")
    assert main([*SMALL, "--store", str(tmp_path), "--family", "llama"]) == 2
    assert "statehal demo: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, "--store", str(tmp_path / "new"), "--inject-fault"])
    assert stop.value.code == 2
