"""The corpus comes out the same every time, owes nothing to what it is compared with, and covers what it should."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statehal.spec import DTYPES
from statehal.testing import corpus
from statehal.testing.corpus import NAMES, generate, load

Json = dict[str, Any]

FOLDER = Path(corpus.__file__).parent
LAYOUTS: list[Json] = load("layout-vectors")["vectors"]
CONVOLUTIONS: list[Json] = load("conv-vectors")["vectors"]


def test_the_files_are_what_is_generated() -> None:
    texts = generate.texts()
    assert set(texts) == {f"{name}.json" for name in NAMES}
    for name, text in texts.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name} is not what its generator writes"


def test_the_command_writes_the_same_bytes_in_another_process_without_torch(tmp_path: Path) -> None:
    program = (
        "import runpy, sys\n"
        "runpy.run_module('statehal.testing.corpus.generate', run_name='__main__')\n"
        "assert not {'torch', 'numpy', 'hypothesis'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    run = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    for name in NAMES:
        assert (tmp_path / f"{name}.json").read_bytes() == (FOLDER / f"{name}.json").read_bytes()


def imported(path: Path) -> set[str]:
    """Modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_the_generator_imports_nothing_of_what_it_is_compared_with() -> None:
    for path in FOLDER.glob("*.py"):
        others = {name for name in imported(path) if not name.startswith("statehal.testing.corpus")}
        assert {name.split(".")[0] for name in others} <= sys.stdlib_module_names, path.name


@pytest.mark.parametrize(("name", "least"), [("layout-vectors", 200), ("conv-vectors", 100)])
def test_there_are_enough_vectors_one_a_line_in_less_than_a_megabyte(name: str, least: int) -> None:
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    vectors = load(name)["vectors"]
    assert len(vectors) >= least
    assert len(text) < 10**6
    lines = [line.removesuffix(",") for line in text.splitlines() if line.startswith("{") and len(line) > 1]
    assert [json.loads(line) for line in lines] == vectors
    assert len({vector["name"] for vector in vectors}) == len(vectors)


LAYOUT_FEATURES: dict[str, Any] = {
    **{
        f"{constructor} {order or ''}": lambda v, c=constructor, o=order: (
            (v["layout"]["constructor"], v["layout"].get("order")) == (c, o)
        )
        for constructor, order in [
            ("page_major", "NHD"),
            ("page_major", "HND"),
            ("token_major", None),
            ("layer_major", "NHD"),
            ("layer_major", "HND"),
            ("nz", None),
            ("x_packed", None),
        ]
    },
    **{
        f"conv_window {protocol} {order} x{multiple}": lambda v, p=protocol, o=order, m=multiple: (
            [v["layout"].get(key) for key in ("protocol", "window_order", "channel_multiple")] == [p, o, m]
        )
        for protocol in ("ring", "offset", "rollback")
        for order in ("rows_first", "channels_first")
        for multiple in (1, 4, 8)
    },
    **{f"pages of {size}": lambda v, s=size: v["layout"]["page_size"] == s for size in (1, 3, 5, 16, 128)},
    **{f"{count} layers": lambda v, n=count: len(v["spec"]["layers"]) == n for count in (1, 2, 3, 5, 12, 36, 61)},
    **{f"width {width}": lambda v, w=width: v["spec"].get("width") == w for width in range(2, 9)},
    "V narrower than K": lambda v: 0 < (v["spec"].get("v_head_dim") or 0) < v["spec"].get("head_dim", 0),
    "V wider than K": lambda v: (v["spec"].get("v_head_dim") or 0) > v["spec"].get("head_dim", 0),
    "scales": lambda v: v["spec"].get("scales"),
    "latent": lambda v: v["spec"]["kind"] == "latent",
    "shared layers": lambda v: v["spec"].get("shared"),
    "extra rows": lambda v: v["spec"]["extra"],
    "extra rows of some layers": lambda v: any(extra["layers"] for extra in v["spec"]["extra"]),
    "a replay ring": lambda v: any(extra["name"] == "replay" for extra in v["spec"]["extra"]),
    "a state": lambda v: v["spec"].get("state"),
    "pages in slabs": lambda v: v["placement"].get("pages_per_slab", 0) > 1,
    "pages that do not begin at 0": lambda v: v["placement"]["offset"],
    "bytes past 2**32": lambda v: v["total_bytes"] > 2**32,
    "ids just below 2**31": lambda v: any(
        2**31 - 2**12 < max(form["token_ids"]) < 2**31
        for form in v["fields"][0]["forms"].values()
        if "token_ids" in form
    ),
    "the last token of the last page": lambda v: (
        v["tokens"][-1] == v["placement"]["num_pages"] * v["layout"]["page_size"] - 1
    ),
    "token 0 of page 1": lambda v: v["layout"]["page_size"] in v["tokens"],
}


@pytest.mark.parametrize("feature", LAYOUT_FEATURES)
def test_layout_vectors_cover(feature: str) -> None:
    assert sum(bool(LAYOUT_FEATURES[feature](vector)) for vector in LAYOUTS) >= 2


def test_every_constructor_has_every_form_and_lacks_what_it_can_lack() -> None:
    found = {
        (vector["layout"]["constructor"], kind, form.get("absent", "exists"))
        for vector in LAYOUTS
        for field in vector["fields"]
        for kind, form in field["forms"].items()
    }
    for constructor in ("page_major", "token_major", "layer_major", "nz", "conv_window", "x_packed"):
        assert {(constructor, kind, "exists") for kind in ("row", "block", "page")} <= found
    assert {kind for kind, reason in {(k, r) for _, k, r in found} if reason == "remainder"} == {"row", "block"}
    assert ("token_major", "block", "holes") in found
    assert ("x_packed", "row", "mixed_radix") in found


def test_every_dtype_is_somewhere() -> None:
    assert {field["dtype"] for vector in LAYOUTS for field in vector["fields"]} == set(DTYPES)


CONV_FEATURES: dict[str, Any] = {
    **{
        f"{method} W={width} {protocol}": lambda v, m=method, w=width, p=protocol: (
            (v["step"]["method"], v["width"], v["protocol"]) == (m, w, p)
        )
        for method in ("prefill", "decode", "verify")
        for width in range(2, 9)
        for protocol in ("ring", "offset", "rollback")
    },
    **{
        f"a {kind} of {protocol}": lambda v, k=kind, p=protocol: (
            v["step"]["method"] == "verify" and v["step"][k] is not None and v["protocol"] == p
        )
        for kind in ("query_start_loc", "parents")
        for protocol in ("ring", "offset", "rollback")
    },
    **{
        f"{dtype} {order} x{multiple}": lambda v, d=dtype, o=order, m=multiple: (
            [v[key] for key in ("dtype", "window_order", "channel_multiple")] == [d, o, m]
        )
        for dtype in ("float32", "float16", "bfloat16")
        for order in ("rows_first", "channels_first")
        for multiple in (1, 4, 8)
    },
    **{
        f"{protocol}, {length} tokens, {'a' if has else 'no'} state": lambda v, p=protocol, h=has, n=length: (
            v["protocol"] == p and (h, n) in sequences(v)
        )
        for protocol in ("ring", "offset", "rollback")
        for has in (False, True)
        for length in (0, 1, 2)
    },
    **{
        f"{protocol}, initial slots": lambda v, p=protocol: v["protocol"] == p and v["step"]["initial_slots"]
        for protocol in ("ring", "offset", "rollback")
    },
    **{
        f"silu of a {method}": lambda v, m=method: v["activation"] == "silu" and v["step"]["method"] == m
        for method in ("prefill", "decode", "verify")
    },
    "no bias": lambda v: v["bias"] is None,
    "padding channels": lambda v: v["channels"] % v["channel_multiple"],
    "a sequence longer than its window": lambda v: any(length >= v["width"] for _, length in sequences(v)),
    "padding slots": lambda v: any(slot < 1 for slot in v["step"]["slots"]),
    "tokens before the first sequence": lambda v: (v["step"]["query_start_loc"] or [0])[0],
    "tokens past the last sequence": lambda v: (v["step"]["query_start_loc"] or [10**9])[-1] < len(v["step"]["x"]),
    "all drafts kept": lambda v: v["verify_tokens"] > 1 and v["verify_tokens"] in v["commit"]["accepted"],
    "a path that skips rows": lambda v: any(
        path[n] > n for path in v["commit"]["path"] or [] for n in range(len(path))
    ),
    "a slot that is not part of the step": lambda v: {one["slot"] for one in v["before"]} - set(v["step"]["slots"]),
    "a window that wraps": lambda v: any(sorted(one["live_rows"]) != one["live_rows"] for one in v["after_commit"]),
}


def sequences(vector: Json) -> set[tuple[bool, int]]:
    """Of a prefill: whether a sequence has an initial state, and its length; padding is left out."""
    step = vector["step"]
    if step["method"] != "prefill":
        return set()
    starts, has = step["query_start_loc"], step["has_initial_state"] or [False] * len(step["slots"])
    return {(has[at], starts[at + 1] - starts[at]) for at, slot in enumerate(step["slots"]) if slot > 0}


@pytest.mark.parametrize("feature", CONV_FEATURES)
def test_conv_vectors_cover(feature: str) -> None:
    assert any(CONV_FEATURES[feature](vector) for vector in CONVOLUTIONS)
