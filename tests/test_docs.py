"""README.md and docs/ run as written, print what they say, and link to what exists."""

import re
from pathlib import Path

import pytest

from doc_blocks import PAGES, ROOT, examples, execute

PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINKING_PAGES = [*PAGE_NAMES, "CONTRIBUTING.md", "CHANGELOG.md", "changes/README.md"]


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_examples_of_a_page_run_and_print_what_it_says(name: str) -> None:
    for example, printed in execute(ROOT / name):
        if example.output is not None:
            assert printed == example.output, f"{name}:{example.line} prints something else than the page says"


@pytest.mark.parametrize("name", LINKING_PAGES)
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    page = ROOT / name
    targets = re.findall(r"\]\((?!https?://|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


PAGE = """\
```python
x = 20
print(x + 1)
```

```text
21
```

<!-- not run: needs a GPU -->
```python
raise SystemExit
```

```python
print(x + 2)
```

Prose between a block and an output:

```text
not that block's output
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_are_found_with_line_output_and_reason(page: Path) -> None:
    found = [(example.line, example.output, example.not_run) for example in examples(page)]
    assert found == [(2, "21\n", None), (12, None, "needs a GPU"), (16, None, None)]


def test_blocks_of_a_page_share_names(page: Path) -> None:
    assert [printed for _, printed in execute(page)] == ["21\n", "22\n"]


def test_a_failing_example_points_at_its_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# title\n\n```python\npass\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as failure:
        execute(page)
    assert (failure.traceback[-1].path, failure.traceback[-1].lineno + 1) == (page, 5)


def test_a_block_is_not_left_out_without_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: -->\n```python\n```\n")
    with pytest.raises(ValueError, match="without a reason"):
        examples(page)
