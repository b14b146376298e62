"""The code blocks of a Markdown page, found and executed: README.md and docs/ are tests of themselves.

A ``python`` block is executed; blocks of one page share a namespace. A ``text`` block that follows a ``python`` block
with nothing but blank lines between is what that block must print. ``<!-- not run: REASON -->`` in the line above a
block keeps it from being executed.
"""

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=fence) *$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!--\s*not run:(?P<reason>.*?)-->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One ``python`` block; ``line`` is that of its first line of code, ``output`` what the page says it prints."""

    page: Path
    line: int
    code: str
    output: str | None
    not_run: str | None


def examples(page: Path) -> list[Example]:
    """The ``python`` blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    blocks = list(_FENCE.finditer(text))
    found = []
    for block, following in zip_longest(blocks, blocks[1:]):
        if block["language"] != "python":
            continue
        output = None
        if following and following["language"] == "text" and not text[block.end() : following.start()].strip():
            output = following["code"]
        marker = _NOT_RUN.search(text, 0, block.start())
        reason = marker["reason"].strip() if marker else None
        if reason == "":
            raise ValueError(f"{page.name}: a block is marked 'not run' without a reason")
        line = text.count("\n", 0, block.start("code")) + 1
        found.append(Example(page, line, block["code"], output, reason))
    return found


def execute(page: Path) -> list[tuple[Example, str]]:
    """Run a page's examples in one module; return each that ran with what it printed.

    A traceback shows the page's own lines. An example that fails raises what it raised.
    """
    module = ModuleType(f"statehal_page_{page.stem}")
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    ran = []
    try:
        for example in examples(page):
            if example.not_run:
                continue
            printed = io.StringIO()
            code = compile("\n" * (example.line - 1) + example.code, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, module.__dict__)
            ran.append((example, printed.getvalue()))
    finally:
        del sys.modules[module.__name__]
    return ran
