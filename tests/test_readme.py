"""The README's first example, which a newcomer copies: short, with its output, and true in a fresh interpreter."""

import subprocess
import sys

from doc_blocks import ROOT, Example, examples


def first_example() -> Example:
    return examples(ROOT / "README.md")[0]


def test_the_first_example_is_short_and_says_what_it_prints() -> None:
    example = first_example()
    statements = [line for line in example.code.splitlines() if line.strip()]
    assert 5 <= len(statements) <= 15
    assert example.output
    assert example.not_run is None


def test_the_first_example_prints_exactly_that() -> None:
    example = first_example()
    run = subprocess.run([sys.executable, "-c", example.code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", example.output)
