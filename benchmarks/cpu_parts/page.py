"""The rows as tables: for the terminal, and in ``docs/cpu.md`` between its two markers."""

from collections.abc import Iterable, Sequence
from typing import Any

from cpu_parts.goals import goals
from statehal.bench import Row

BEGIN = "<!-- measured: made by `benchmarks/cpu.py --publish` -->\n"
END = "<!-- end of measured -->"


def line(row: Row) -> str:
    """One row for a terminal."""
    peers = ", ".join(f"{name} {times:.1f}" for name, times in row.peers.items())
    missed = [text for text, reached in goals(row).items() if not reached]
    return (
        f"{row.name:26}{row.case:24}{row.us:10.1f} us {row.of_copy:7.2f} x copy"
        f"{'  times ours: ' + peers if peers else ''}{'  MISSED: ' + '; '.join(missed) if missed else ''}"
    )


def section(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """What ``docs/cpu.md`` says of a run."""
    missed = [f"{row.name}, {row.case}: {text}" for row in rows for text, reached in goals(row).items() if not reached]
    asked = sum(len(goals(row)) for row in rows)
    return "\n".join(
        [
            f"On {about['processor']}, {about['isa']}, one thread, medians of at least {about['rounds']} rounds;",
            f"torch {about['torch']}, transformers {about['transformers']}{about['engine']}:",
            "",
            "![bars as multiples of the copy](cpu.svg)",
            "",
            "| operation, bfloat16 | microseconds | multiples of the copy | meant to be | times as long others take |",
            "|---|---|---|---|---|",
            *_lines(row for row in rows if row.name != "fixed cost"),
            "",
            f"{asked - len(missed)} of {asked} goals were reached" + (", and these were not:" if missed else "."),
            *([""] if missed else []),
            *(f"- {text}" for text in missed),
            "",
            "The smallest call of each operation, every output given, in microseconds, meant to be at most 4: "
            + ", ".join(f"`{row.case}` {row.us:.1f}" for row in rows if row.name == "fixed cost")
            + ".",
            "",
        ]
    )


def _lines(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        due = "; ".join(text.removesuffix(" the copy") for text in goals(row))
        peers = "; ".join(f"{name} {times:.1f}" for name, times in row.peers.items())
        yield f"| {row.name}, {row.case} | {row.us:.1f} | {row.of_copy:.2f} | {due} | {peers} |"


def put(page: str, text: str) -> str:
    """The page with this text between its markers."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"docs/cpu.md has no {BEGIN.strip()!r} before {END!r} (fix: put both lines back)")
    return before + BEGIN + text + END + after
