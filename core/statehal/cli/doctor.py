"""``statehal doctor``: the verdict, every backend, every problem with its fix, and the choice for each device."""

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from statehal import doctor
from statehal.cli.output import print_styled, print_table

if TYPE_CHECKING:
    from statehal.cli import Subparsers

_STYLES = {0: "bold green", 1: "bold red", 2: "bold yellow"}


def add_parser(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="which backends are installed, what is wrong with them, and which one each device would get",
        epilog="exit status: 0 all is well, 1 something installed is broken, 2 what was requested is missing",
    )
    parser.add_argument("--device", help="ask about this device, such as cpu, instead of those present")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the report; return its exit code."""
    with contextlib.redirect_stdout(sys.stderr):  # a plugin that prints must not damage the JSON
        report = doctor.report(args.device)
    if args.json:
        print(report.to_json())
    else:
        _print(report)
    return report.exit_code


def _print(report: doctor.Report) -> None:
    print_styled(report.verdict, _STYLES[report.exit_code])
    print(", ".join(f"{name} {version}" for name, version in report.versions.items()))
    print("\nbackends")
    rows = [(row.name, row.device, row.state, str(row.priority), row.distribution) for row in report.backends]
    print_table(("name", "device", "state", "priority", "from"), rows, numeric=("priority",))
    for row in report.backends:
        if row.reason:
            print(f"{row.name} on {row.device}: {row.reason}")
            _print_fix(row.fix)
    for name, source in report.overrides.items():
        print(f"plugin {name} of {source} overrides what the backends provide")
    if report.problems:
        print("\nproblems")
    for problem in report.problems:
        print(f"{problem.severity}: {problem.text}")
        _print_fix(problem.fix)
        for line in problem.traceback.splitlines():
            print(f"    {line}")
    print("\nchoice")
    print_table(
        ("device", "backend", "why"), [(row.device, row.backend or "none", row.reason) for row in report.devices]
    )
    if report.variables:
        print("\nvariables")
        print_table(("name", "value"), list(report.variables.items()))


def _print_fix(fix: str) -> None:
    if fix:
        print(f"  fix: {fix}")
