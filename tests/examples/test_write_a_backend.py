"""docs/write-a-backend.md: its code is the example's, and whoever follows it has a backend that conforms."""

import re
import shutil
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


def plain(text: str) -> str:
    """A text in which every number is an N."""
    return re.sub(r"\d+", "N", text)


def test_every_block_is_a_part_of_the_examples() -> None:
    found = parts(TEXT)
    assert len(found) == TEXT.count("part of examples/")
    assert len(found) >= 10
    assert [(part.path, line) for part in found if (line := missing(part))] == []


def test_deviations_that_it_shows_match_checks_of_the_kit() -> None:
    text = re.search(r"^## 6.*?^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert text is not None
    assert execute(PAGE)
    for pattern in re.findall(r'\{"([^"]+/[^"]+)": ', text[1]):
        assert any(fnmatchcase(name, pattern) for name in CHECKS), pattern


def test_the_topics_that_it_names_are_those_of_the_kit() -> None:
    table = TEXT[TEXT.index("| method |") : TEXT.index("An optional argument that you do not offer")]
    topics = {word for row in table.strip().splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[2])}
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
    package = tmp_path / "statehal-acme/src/statehal_acme"
    shutil.copy(EXAMPLES / "statehal-acme/src/statehal_acme/arguments.py", package)
    place = Environment(tmp_path)
    place.install(tmp_path / "statehal-acme", editable=True)

    printed = place.run("-m", "statehal", "doctor")
    (shown,) = (block for block in blocks(TEXT) if block.startswith("backends\n"))
    assert [line for line in shown.splitlines() if line not in printed.splitlines()] == []

    verdict = place.run("-m", "statehal", "check", "acme", "--profile", "dev").splitlines()[0]
    (shown,) = (block for block in blocks(TEXT) if block.startswith("ok: acme"))
    assert plain(verdict) == plain(shown.strip())
