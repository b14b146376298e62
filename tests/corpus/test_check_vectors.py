"""`examples/corpus/check_vectors.py` agrees with the corpus on its own, and sees every kind of damage."""

import copy
import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import ROOT
from statehal.testing import corpus
from statehal.testing.corpus import NAMES, load

Json = dict[str, Any]

SCRIPT = ROOT / "examples" / "corpus" / "check_vectors.py"
FOLDER = Path(corpus.__file__).parent


def check(*arguments: str | Path, cwd: Path = ROOT) -> tuple[int, str]:
    """Run the script with the standard library alone: no site packages, no environment, no import of statehal."""
    command = [sys.executable, "-I", "-S", SCRIPT, *arguments]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.returncode, run.stdout


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with both files."""
    for name in NAMES:
        shutil.copy(FOLDER / f"{name}.json", tmp_path)
    return tmp_path


def test_it_agrees_with_every_vector(tmp_path: Path) -> None:
    layouts, convolutions = (len(load(name)["vectors"]) for name in NAMES)
    said = (
        f"layout-vectors.json: {layouts} of {layouts} vectors agree\n"
        f"conv-vectors.json: {convolutions} of {convolutions} vectors agree\n"
    )
    assert check(cwd=tmp_path) == (0, said)
    assert check(FOLDER) == (0, said)


def test_a_damaged_address_fails_and_is_named(copied: Path) -> None:
    damage(copied / "layout-vectors.json", 17, "fields", 1, "addresses", 2, "byte")
    total = len(load("layout-vectors")["vectors"])
    code, printed = check(copied)
    assert code == 1
    assert f"layout-vectors.json: {total - 1} of {total} vectors agree\n" in printed
    assert f"layout-vectors.json: {load('layout-vectors')['vectors'][17]['name']}: Differs: v layer " in printed


def test_a_damaged_window_fails_and_is_named(copied: Path) -> None:
    damage(copied / "conv-vectors.json", 40, "after_commit", 0, "window", 0, 0)
    total = len(load("conv-vectors")["vectors"])
    code, printed = check(copied)
    assert code == 1
    assert f"conv-vectors.json: {total - 1} of {total} vectors agree\n" in printed
    assert "Differs: window of slot 1 after the commit" in printed


def damage(path: Path, vector: int, *keys: str | int) -> None:
    """Add 1 to a number of a file."""
    loaded = json.loads(path.read_text(encoding="utf-8"))
    put(loaded["vectors"][vector], keys, 1)
    path.write_text(json.dumps(loaded), encoding="utf-8")


def put(vector: Any, keys: tuple[str | int, ...], more: float) -> None:
    for key in keys[:-1]:
        vector = vector[key]
    vector[keys[-1]] += more


def numbers(value: Any, *keys: str | int) -> Iterator[tuple[str | int, ...]]:
    """Where the numbers of a value are."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(item, *keys, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield keys


def results(name: str, vector: Json) -> Iterator[tuple[str | int, ...]]:
    """The numbers that follow from a vector's others."""
    if name == "conv-vectors":
        for key in ("y", "after_step", "after_commit"):
            yield from numbers(vector[key], key)
        return
    yield from ((key,) for key in ("page_bytes", "total_bytes"))
    for at, field in enumerate(vector["fields"]):
        for key in ("base", "page_stride", "itemsize", "forms"):
            yield from numbers(field[key], "fields", at, key)
        for n in range(len(field["addresses"])):
            yield "fields", at, "addresses", n, "byte"


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_a_result_can_change_unseen(name: str) -> None:
    """One number after another of every seventh vector, in this process because they are many."""
    script = runpy.run_path(str(SCRIPT))
    checks, tried = script["CHECKS"][f"{name}.json"], 0
    for vector in load(name)["vectors"][::7]:
        for keys in list(results(name, vector))[::5]:
            other = copy.deepcopy(vector)
            put(other, keys, 1)
            tried += 1
            with pytest.raises(script["Differs"]):
                checks(other)
    assert tried > 500


def test_a_form_cannot_be_claimed_or_denied_unseen() -> None:
    script = runpy.run_path(str(SCRIPT))
    seen = set()
    for vector in load("layout-vectors")["vectors"]:
        for at, field in enumerate(vector["fields"]):
            for kind, form in field["forms"].items():
                other = copy.deepcopy(vector)
                seen.add((kind, form.get("absent")))
                other["fields"][at]["forms"][kind] = field["forms"]["page"] if "absent" in form else {"absent": "holes"}
                if form.get("absent") == "holes":
                    continue
                with pytest.raises(script["Differs"]):
                    script["check_layout"](other)
    assert ("block", "remainder") in seen


def test_it_imports_the_standard_library_alone() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    imports = [line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert set(imports) <= set(sys.stdlib_module_names)
