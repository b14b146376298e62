"""``statehal bench [NAME]``: what a backend's operations take on the CPU, as multiples of a copy of the same bytes."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from statehal.cli.output import print_table

if TYPE_CHECKING:
    from statehal.cli import Subparsers

_NUMBERS = ("us", "copy us", "x copy")


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("bench", help="what a backend's operations take on the CPU, beside a copy")
    parser.add_argument("backend", metavar="NAME", nargs="?", help="the backend; by default the one that is chosen")
    parser.add_argument("--rounds", metavar="N", type=int, default=21, help="rounds of which medians are (default 21)")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="operations with this in their names: conv, kv_write"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as a JSON list")


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    from statehal.bench import rows_of
    from statehal.binding import bind

    binding = bind("cpu", args.backend)
    rows = list(rows_of(binding, args.rounds, args.only))
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print(f"backend {binding.backend!r} on {binding.device}, one thread: {dict(binding.describe().details)}")
    cells = [(r.name, r.case, f"{r.us:.1f}", f"{r.copy_us:.1f}", f"{r.of_copy:.2f}") for r in rows]
    print_table(("operation", "case", *_NUMBERS), cells, numeric=_NUMBERS)
    return 0
