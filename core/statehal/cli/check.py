"""``statehal check NAME``: the conformance kit without pytest."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from statehal import testing
from statehal.cli.check_output import print_report
from statehal.errors import StatehalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statehal.cli import Subparsers
    from statehal.testing import Check, Result

_PROFILES = ("dev", "ci", "thorough")


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "check",
        help="hold a backend to the contract: the conformance kit, which needs statehal[testing]",
        epilog="exit status: 0 it conforms, 1 something failed, 2 nothing could be run",
    )
    parser.add_argument("name", metavar="NAME", help="the backend, as statehal doctor lists it")
    parser.add_argument("--device", default="cpu", metavar="D", help="the device to run on (default cpu)")
    parser.add_argument("--only", metavar="PATTERN", help="a topic, such as kv_write, or a pattern of names: 'kv_*'")
    parser.add_argument("--profile", choices=_PROFILES, default="ci", help="how much is drawn (default ci)")
    parser.add_argument("--verbose", action="store_true", help="name every check that was not run, cut nothing short")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the checks and print the report."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a plugin that prints must not damage the JSON
            target = testing.Target(args.name, args.device)
            count = len(testing.select(testing.CHECKS.values(), args.only))
            with _progress(count, f"{args.name} on {args.device}") as progress:
                report = testing.run(target, profile_name=args.profile, only=args.only, progress=progress)
    except StatehalError as error:
        print(f"statehal: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print_report(report, verbose=args.verbose)
    return 0 if report.ok else 1


@contextlib.contextmanager
def _progress(total: int, what: str) -> "Iterator[Callable[[Check, Result], None] | None]":
    """One line on a terminal, which goes away at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, last="")

        def progress(check: "Check", result: "Result") -> None:
            bar.update(task, advance=1, last=f"{result.status} {check.name}")

        yield progress
