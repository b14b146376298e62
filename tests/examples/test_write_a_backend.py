"""docs/write-a-backend.md: its code is the example's, and whoever follows it has a backend that conforms."""

import ast
import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from doc_blocks import ROOT, execute
from examples.throwaway import EXAMPLES, Environment
from statehal.testing import CHECKS

pytestmark = pytest.mark.xdist_group("examples")

PAGE = ROOT / "docs/write-a-backend.md"
TEXT = PAGE.read_text(encoding="utf-8")
_PART = re.compile(
    r"<!-- (?:not run: )?part of (?P<path>\S+) -->\n```\w+\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_TEXT = re.compile(r"^```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A block that says of which file of the examples it is a part."""

    path: str
    code: str


def parts(text: str) -> list[Part]:
    return [Part(found["path"], found["code"]) for found in _PART.finditer(text)]


def blocks(text: str) -> list[str]:
    return [found["text"] for found in _TEXT.finditer(text)]


def missing(part: Part) -> str:
    """The first line of a block that does not follow, in the example's file, the lines before it; blank ones aside."""
    lines = iter((ROOT / part.path).read_text(encoding="utf-8").splitlines())
    return next((line for line in part.code.splitlines() if line.strip() and line not in lines), "")


def cells(table: str) -> list[list[str]]:
    """Words by line: widths of columns depend on what else is installed."""
    return [line.split() for line in table.splitlines()]


def code(file: Path) -> list[str]:
    """The lines of a file without blank ones and, of Python, without the docstring of the module."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    if file.suffix == ".py" and (first := ast.parse(text).body) and ast.get_docstring(ast.parse(text)):
        lines = lines[first[0].end_lineno :]
    return [line for line in lines if line.strip()]


def test_every_block_is_a_part_of_the_examples() -> None:
    found = parts(TEXT)
    assert len(found) == TEXT.count("part of examples/")
    assert len(found) >= 10
    assert [(part.path, line) for part in found if (line := missing(part))] == []


def test_its_blocks_and_the_files_that_it_copies_are_the_whole_example() -> None:
    shown: dict[str, set[str]] = {}
    for part in parts(TEXT):
        shown.setdefault(part.path, set()).update(part.code.splitlines())
    ((folder, names),) = re.findall(r"^cp statehal/(\S+)/\{(\S+)\}\.py ", TEXT, re.MULTILINE)
    copied = {f"{folder}/{name}.py" for name in names.split(",")}
    files = {str(file.relative_to(ROOT)): file for file in EXAMPLES.glob("statehal-acme/**/*.py")}
    assert copied <= files.keys()
    for path in files.keys() - copied:
        assert [line for line in code(files[path]) if line not in shown.get(path, ())] == [], path


def test_deviations_that_it_shows_match_checks_of_the_kit() -> None:
    text = re.search(r"^## 6.*?^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert text is not None
    assert execute(PAGE)
    for pattern in re.findall(r'\{"([^"]+/[^"]+)": ', text[1]):
        assert any(fnmatchcase(name, pattern) for name in CHECKS), pattern


def test_the_topics_that_it_names_are_those_of_the_kit() -> None:
    table = TEXT[TEXT.index("| method |") : TEXT.index("**`move`**")]
    topics = {word for row in table.strip().splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[3])}
    known = {name.split("/")[0] for name in CHECKS}
    assert topics <= known
    assert known - topics <= {"discovery", "pool_layout", "conv_layout", "graph_safety", "compile_safety"}


def test_whoever_follows_it_has_a_backend_with_one_method_that_conforms(tmp_path: Path) -> None:
    start, last = TEXT.index("## 1."), TEXT.index("## 4.")
    for part in parts(TEXT[start:last]):
        path = tmp_path / Path(part.path).relative_to("examples")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(part.code)
    place = Environment(tmp_path)
    place.install(tmp_path / "statehal-acme", editable=True)

    printed = cells(place.run("-m", "statehal", "doctor"))
    (shown,) = (block for block in blocks(TEXT) if block.startswith("backends\n"))
    assert [line for line in cells(shown) if line not in printed] == []

    verdict = place.run("-m", "statehal", "check", "acme", "--profile", "dev").splitlines()[0]
    (shown,) = (block for block in blocks(TEXT) if block.startswith("ok: acme"))
    assert re.fullmatch(re.escape(shown.strip()).replace(r"\.\.\.", r"\d+"), verdict)


def test_a_copy_that_is_renamed_as_it_says_conforms(tmp_path: Path) -> None:
    (tmp_path / "statehal").symlink_to(ROOT)
    (script,) = (block for block in blocks(TEXT) if block.startswith("cp -r "))
    report = json.loads(Environment(tmp_path).shell(script.replace("statehal check", "statehal check --json")))
    assert (report["backend"], report["ok"], report["faults"]) == ("mychip", True, [])
    files = [path for path in (tmp_path / "statehal-mychip").rglob("*") if path.suffix in (".py", ".toml", ".md")]
    assert [path for path in files if "acme" in f"{path.name} {path.read_text(encoding='utf-8')}".lower()] == []
    statuses = {result["check"]: result["status"] for result in report["results"]}
    assert set(statuses.values()) == {"passed", "filtered"}
    passed = {check.split("/")[0] for check, status in statuses.items() if status == "passed"}
    assert {"kv_write", "kv_move", "conv_prefill", "conv_decode", "conv_verify", "conv_commit"} <= passed
    assert {"conv_slots", "conv_rounding", "pool_layout", "memory_ops", "discovery", "compile_safety"} <= passed
