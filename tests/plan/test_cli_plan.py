"""``statehal plan``: its numbers are the plan's, and wrong input is answered with the entry, the key and the knob."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plan.models import GEMMA3_27B, GPT_OSS_20B, KIMI_LINEAR_TP4, MAMBA2_2_7B, QWEN3_NEXT_TP4
from statehal.cli import main
from statehal.cli.plan_input import EXAMPLES, parse_size, read_specs
from statehal.pool import plan
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec

ENTRY: dict[str, Any] = {
    "kind": "Attention",
    "name": "full",
    "layers": [0, 1],
    "kv_heads": 2,
    "head_dim": 64,
    "dtype": "bfloat16",
}

KEYS = "expected name, layers, shared, extra, ids, kv_heads, head_dim, dtype, v_head_dim, window, scales"


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    status = main(["plan", *map(str, argv)])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    """Two sub-pools of every kind of key."""
    path = tmp_path / "specs.json"
    entries = [
        ENTRY | {"shared": [[5, 1]], "v_head_dim": None, "scales": "per_token_head"},
        {"kind": "Latent", "name": "mla", "layers": [2], "kv_lora_rank": 12, "qk_rope_head_dim": 4, "dtype": "int8",
         "extra": [{"name": "indexer", "row_shape": [132], "dtype": "uint8", "layers": [2]}], "ids": "direct"},
        {"kind": "ConvRecurrent", "name": "gdn", "layers": [3], "channels": 6, "width": 4, "dtype": "float32",
         "sections": [1, 2, 3], "verify_tokens": 3, "state": [2, 2], "state_dtype": "bfloat16"},
    ]  # fmt: skip
    path.write_text(json.dumps(entries))
    return path


def test_a_file_of_specs_is_read(specs: Path) -> None:
    assert read_specs(str(specs)) == (
        Attention("full", (0, 1), 2, 64, "bfloat16", scales="per_token_head", shared=((5, 1),)),
        Latent("mla", (2,), 12, 4, "int8", extra=(ExtraField("indexer", (132,), "uint8", (2,)),), ids="direct"),
        ConvRecurrent(
            "gdn", (3,), 6, 4, "float32", sections=(1, 2, 3), verify_tokens=3, state=(2, 2), state_dtype="bfloat16"
        ),
    )


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["--total-bytes", "1MiB", "--page-size", "4"], {"total_bytes": 1024 * 1024, "page_size": 4}),
        (["--total-bytes", "1MiB"], {"total_bytes": 1024 * 1024, "page_size": 16}),
        (["--tokens", "1000", "--requests", "7"], {"tokens": 1000, "requests": 7, "page_size": 16}),
        (["--tokens", "99", "--waste-limit", "0.25"], {"tokens": 99, "waste_limit": 0.25, "page_size": 16}),
    ],
    ids=["small-pages", "bytes", "tokens", "waste"],
)
def test_the_json_holds_the_plans_numbers(
    specs: Path, capsys: pytest.CaptureFixture[str], argv: list[str], options: dict[str, Any]
) -> None:
    made = plan(read_specs(str(specs)), **options)
    status, out, err = run(capsys, specs, "--json", *argv)
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert {key: told[key] for key in ("page_size", "requested_bytes", "total_bytes", "unused_bytes")} == {
        "page_size": options["page_size"],
        "requested_bytes": made.requested_bytes,
        "total_bytes": made.total_bytes,
        "unused_bytes": made.unused_bytes,
    }
    assert told["largest_request"] == made.largest_request()
    assert [tuple(region.values()) for region in told["regions"]] == [
        (region.offset, region.slab_bytes, region.num_slabs, list(region.members)) for region in made.regions
    ]
    for name, sub in made.subpools.items():
        row = told["subpools"][name]
        assert row["max_pages"] == sub.max_pages
        assert row["pages_per_slab"] == sub.pages_per_slab
        assert row["page_bytes"] == sub.layout.page_bytes
        assert row["payload_bytes"] == sub.layout.payload_bytes
        assert row["bytes_per_token"] == sub.bytes_per_token
        assert row["waste"] == sub.waste
        assert [form["kind"] for forms in row["forms"].values() for form in forms] == [
            kind for field in sub.layout.fields for kind in sub.layout.kinds(field.name)
        ]
        for field in sub.layout.fields:
            for form in row["forms"][field.name]:
                steps = {"row": field.token_stride, "page": sub.layout.page_bytes}[form["kind"]]
                assert form["ratio"] == sub.layout.page_bytes // (steps or 0)


def test_the_text_says_what_the_design_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    """gpt-oss-20b in 1 GiB: slabs of 384 KiB, one page each, 24 KiB a token, one table of ratio 2 * 12 * 16."""
    status, out, _ = run(capsys, "--example", "gpt-oss-20b", "--total-bytes", "1GiB")
    lines = [line.split() for line in out.splitlines()]
    slabs = 1024**3 // 393_216
    assert status == 0
    assert f"{slabs:,} slabs of 393,216 bytes for full, swa; slab 0 is the sink" in out
    assert f"{1024**3 - slabs * 393_216:,} left over" in out
    for name in ("full", "swa"):
        assert [name, f"{slabs - 1:,}", "1", "393,216", "24,576.0", "0.00%"] in lines
        assert [name, "k", "8", "x", "64", "bfloat16", "1,024", "row", "384"] in lines
    # 9 pages of the window beside those of full attention
    assert f"longest single request: {(slabs - 1 - 9) * 16:,} tokens" in out


def test_a_window_of_any_length_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "swa.json"
    path.write_text(json.dumps([ENTRY | {"window": 64}]))
    _, out, _ = run(capsys, path, "--total-bytes", "1MB")
    assert "1,000,000 bytes" not in out
    assert "longest single request: any length" in out
    assert json.loads(run(capsys, path, "--total-bytes", "1MB", "--json")[1])["largest_request"] is None


@pytest.mark.parametrize(
    ("name", "specs"),
    [
        ("gpt-oss-20b", GPT_OSS_20B),
        ("gemma-3-27b", GEMMA3_27B),
        ("qwen3-next-80b-tp4", QWEN3_NEXT_TP4),
        ("kimi-linear-48b-tp4", KIMI_LINEAR_TP4),
        ("mamba2-2.7b", [MAMBA2_2_7B]),
    ],
)
def test_examples_have_the_sizes_of_the_models(name: str, specs: list[Spec]) -> None:
    known = plan(EXAMPLES[name], total_bytes=8 * 1024**3).subpools
    literal = plan(specs, total_bytes=8 * 1024**3).subpools
    assert {key: sub.layout.payload_bytes for key, sub in known.items()} == {
        key: sub.layout.payload_bytes for key, sub in literal.items()
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_plans(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--example", name, "--total-bytes", "4GiB")[0] == 0


@pytest.mark.parametrize("layout", ["token-major", "layer-major"])
def test_other_layouts(layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--example", "smollm2-135m", "--total-bytes", "1GiB", "--layout", layout, "--json")
    (form,) = json.loads(out)["subpools"]["full"]["forms"]["k"]
    assert (status, form) == (0, {"kind": "row", "ratio": 16})


def test_budgets_of_layer_major_sub_pools(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--example", "gpt-oss-20b", "--total-bytes", "1GiB", "--layout", "layer-major"]
    status, _, err = run(capsys, *argv)
    assert status == 1
    assert err == (
        "statehal: sub-pool 'full' cannot share slabs, because each of its layers is contiguous over all pages or "
        "nobody shares with it (fix: give its bytes in budgets={'full': ...}, or use a page-major layout)\n"
    )
    status, out, _ = run(capsys, *argv, "--budget", "full=600MiB", "--budget", "swa=100MiB", "--json")
    assert status == 0
    assert [region["num_slabs"] for region in json.loads(out)["regions"]] == [1, 1]
    assert json.loads(out)["subpools"]["full"]["max_pages"] == 600 * 1024**2 // 393_216 - 1


def test_a_budget_too_small_names_numbers_and_knob(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--example", "gpt-oss-20b", "--total-bytes", "1MiB")
    assert (status, out) == (1, "")
    assert err == (
        "statehal: 1048576 bytes cannot be divided into slabs for pages of full 393216, swa 393216 bytes: within "
        "waste_limit=0.02 a slab takes 393216 bytes and 3 are needed, one of them the sink (fix: raise total_bytes to "
        "1179648, raise waste_limit, or change page_size)\n"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[{", "no JSON: Expecting property name enclosed in double quotes: line 1 column 3 (char 2)"),
        ({"kind": "Attention"}, 'holds {"kind": "Attention"}: expected a list of specs'),
        ([], "a plan needs specs of distinct names: got []"),
        ([ENTRY, 7], "entry 1 is 7: expected an object with the keys of a spec"),
        ([{"name": "x"}], "entry 0 ('x') has kind=None: expected one of Attention, ConvRecurrent, Latent"),
        (
            [ENTRY | {"kind": "Atention"}],
            "entry 0 ('full') has kind='Atention': expected one of Attention, ConvRecurrent, Latent (did you mean 'Att",
        ),
        (
            [ENTRY, ENTRY | {"name": "swa", "head_dims": 4}],
            f"entry 1 ('swa') has an unknown key 'head_dims': {KEYS} (did you mean 'head_dim'?)",
        ),
        ([{"kind": "Latent", "name": "mla", "layers": [0]}], "entry 0 ('mla') lacks the key 'kv_lora_rank'"),
        ([ENTRY | {"layers": 24}], "entry 0 ('full') has layers: 24: expected a list of integers"),
        ([ENTRY | {"layers": ["0"]}], "entry 0 ('full') has layers: \"0\": expected an integer"),
        ([ENTRY | {"kv_heads": 8.0}], "entry 0 ('full') has kv_heads: 8.0: expected an integer"),
        ([ENTRY | {"kv_heads": True}], "entry 0 ('full') has kv_heads: true: expected an integer"),
        ([ENTRY | {"dtype": 16}], "entry 0 ('full') has dtype: 16: expected a string"),
        ([ENTRY | {"ids": "raw"}], "entry 0 ('full') has ids: \"raw\": expected \"virtual\" or \"direct\""),
        ([ENTRY | {"scales": "row"}], "entry 0 ('full') has scales: \"row\": expected \"per_token_head\""),
        ([ENTRY | {"shared": [[5]]}], "entry 0 ('full') has shared: [5]: expected a list of two integers"),
        ([ENTRY | {"shared": [5]}], "entry 0 ('full') has shared: 5: expected a list of two integers"),
        ([ENTRY | {"extra": ["x"]}], "entry 0 ('full') has extra: \"x\": expected an object"),
        (
            [ENTRY | {"extra": [{"name": "x", "dtype": "int8"}]}],
            "entry 0 ('full'): an extra row lacks the key 'row_shape'",
        ),
        ([ENTRY | {"dtype": "bool"}], "entry 0 ('full'): dtype 'bool' cannot hold state: expected one of float32, "),
        ([ENTRY | {"head_dim": 0}], "entry 0 ('full'): spec 'full' has head_dim=0: expected an integer of at least 1"),
        ([ENTRY | {"name": "<b>"}], "entry 0 ('<b>'): spec name '<b>' must be letters, digits, '.', '_' and '-'"),
        ([ENTRY, ENTRY], "a plan needs specs of distinct names: got ['full', 'full']"),
    ],
)  # fmt: skip
def test_wrong_files_are_told_by_entry_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, text: str
) -> None:
    path = tmp_path / "specs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    status, out, err = run(capsys, path, "--total-bytes", "1GiB")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert err.removeprefix("statehal: ").removeprefix(f"{path}: ").startswith(text)


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = tmp_path / "gone.json"
    status, _, err = run(capsys, gone, "--tokens", "9")
    assert (status, err) == (
        1,
        f"statehal: {gone}: No such file or directory (fix: name a JSON file of specs, or use --example)\n",
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096),
        ("7B", 7),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("0.5 MiB", 512 * 1024),
        ("8GiB", 8 * 1024**3),
        ("80gib", 80 * 1024**3),
        ("3TB", 3 * 10**12),
        ("1.3KiB", 1331),
        ("123456789.987654321TiB", 123456789987654321 * 1024**4 // 10**9),
    ],
)
def test_sizes(text: str, number: int) -> None:
    assert parse_size(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "8 gigs", "-1", "1e9", "8Gi", "1,000", "½KiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match="is no size: expected bytes, or a number with KiB, MiB, GiB or"
    ):
        parse_size(text)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--tokens", "5"], "one of the arguments SPECS.json --example is required"),
        (["--example", "gpt-oss-20b"], "one of the arguments --total-bytes --tokens is required"),
        (["--example", "gpt-oss-20b", "--tokens", "5", "--total-bytes", "5"], "not allowed with argument"),
        (["--example", "gpt-4", "--tokens", "5"], "invalid choice: 'gpt-4'"),
        (["--example", "gpt-oss-20b", "--total-bytes", "8 gigs"], "argument --total-bytes: '8 gigs' is no size"),
        (["--example", "gpt-oss-20b", "--tokens", "5", "--budget", "full"], "'full' is no budget: expected NAME=SIZE"),
    ],
    ids=["specs", "budget", "both", "example", "size", "name"],
)
def test_wrong_command_lines(capsys: pytest.CaptureFixture[str], argv: list[str], text: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["plan", *argv])
    assert text in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "no" / "where.html"
    status, _, err = run(capsys, "--example", "gpt-oss-20b", "--tokens", "5", "--html", target)
    assert (status, err) == (
        1,
        f"statehal: --html {target}: No such file or directory (fix: name a file that can be written)\n",
    )


def test_planning_and_drawing_need_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from statehal.cli import main; "
        f"main(['plan', '--example', 'gpt-oss-20b', '--tokens', '99', '--html', {str(tmp_path / 'x.html')!r}]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "x.html").stat().st_size > 5000
