"""The page of the docs that shows what was compiled: ``python -m statehal_triton_ops.compile.page SUMMARY PAGE``."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statehal_triton_ops.compile.tables import markdown

BEGIN, END = "<!-- kernels: made by `make kernels` -->", "<!-- end of kernels -->"


def shown(page: str, summary: Mapping[str, Any]) -> str:
    """The page with a ``Report.summary()`` between its markers.

    Raises:
        ValueError: the page has no such markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} and {END!r}")
    verdict = "passed" if summary["passed"] else f"{len(summary['faults'])} faults"
    rows = sum(entry["rows"] for entry in summary["worst"])
    subset = ", the quick subset" if summary["quick"] else ""
    said = f"Triton {summary['triton']}: {len(summary['kernels'])} kernels, {rows} compilations{subset}: {verdict}."
    return f"{before}{begin}\n{said}\n\n{markdown(summary)}{end}{after}"


if __name__ == "__main__":
    stored, page = map(Path, sys.argv[1:])
    page.write_text(
        shown(page.read_text(encoding="utf-8"), json.loads(stored.read_text(encoding="utf-8"))), encoding="utf-8"
    )
