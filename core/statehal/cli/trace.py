"""``statehal trace summary FILE``: calls and times for each operation and backend of a trace."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from statehal.cli.output import print_table
from statehal.trace import summarise

if TYPE_CHECKING:
    from statehal.cli import Subparsers

_NUMBERS = ("calls", "total us", "p50 us", "p99 us")


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("trace", help="what is in a file written under STATEHAL_TRACE=FILE.json")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    summary = actions.add_parser(
        "summary", help="calls, total, median and 99th percentile of host time for each operation and backend"
    )
    summary.add_argument("file", metavar="FILE", help="a trace file")
    summary.add_argument("--json", action="store_true", help="print the rows as a JSON list")


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    rows = summarise(args.file)
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    elif not rows:
        print("the trace holds no calls")
    else:
        cells = [
            (r.kind, r.op, r.backend, str(r.calls), f"{r.total_us:.1f}", f"{r.p50_us:.1f}", f"{r.p99_us:.1f}")
            for r in rows
        ]
        print_table(("kind", "op", "backend", *_NUMBERS), cells, numeric=_NUMBERS)
    return 0
