"""The README's code runs and prints what the page says."""

from pathlib import Path

from doc_blocks import execute


def test_the_examples_of_the_readme() -> None:
    ran = execute(Path(__file__).parents[1] / "README.md")
    assert ran
    for example, printed in ran:
        if example.output is not None:
            assert printed == example.output, f"line {example.line}"
