"""``statehal-triton-ops``: the command line of the kernels."""

import argparse
import json
import sys
from collections.abc import Sequence

from statehal.errors import StatehalError
from statehal_triton_ops.compile import TARGETS, Fault, Report, run
from statehal_triton_ops.compile.tables import markdown, table
from statehal_triton_ops.compile.targets import named

SHOWN = 40
"""Faults that are printed; ``--json`` has all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0: no fault, 1: faults, 2: the command line is wrong."""
    arguments = _parser().parse_args(argv)
    try:
        report = run(targets=named(arguments.targets), quick=arguments.quick, jobs=arguments.jobs)
    except StatehalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json or arguments.summary:
        print(json.dumps(report.as_dict() if arguments.json else report.summary(), indent=1))
    elif arguments.markdown:
        print(markdown(report.summary()), end="")
    else:
        _print_table(report)
    return 0 if report.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="statehal-triton-ops", description="Vendor-neutral Triton kernels of statehal."
    )
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "compile", help="compile every kernel for every target, without a device, and check what comes out"
    )
    command.add_argument(
        "--targets", type=lambda text: text.split(","), default=list(TARGETS), help=f"some of {','.join(TARGETS)}"
    )
    command.add_argument("--quick", action="store_true", help="a subset of rows, each for two targets in turn")
    command.add_argument("--jobs", type=int, help="processes (default: one for each processor)")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything, as JSON")
    form.add_argument("--summary", action="store_true", help="the worst values by kernel and target, as JSON")
    form.add_argument("--markdown", action="store_true", help="the same as a Markdown table")
    return parser


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200)
    columns, rows = table(report.summary())
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, justify="left" if name in ("kernel", "target") else "right", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    console.print(made)
    faults = joined(report.faults)
    for text in faults[:SHOWN]:
        console.print(Text(f"\n{text}"), soft_wrap=True)
    if len(faults) > SHOWN:
        console.print(f"\n... and {len(faults) - SHOWN} more (--json has all)")
    verdict = "passed" if report.passed else f"FAILED: {len(report.faults)} faults"
    counts = f"{len(report.kernels)} kernels, {len(report.results)} compilations for {len(report.targets)} targets"
    console.print(Text(f"\n{verdict}: {counts}, triton {report.triton}", style="green" if report.passed else "red"))


def joined(faults: Sequence[Fault]) -> list[str]:
    """One text for the same fault of several targets and scenarios: the first one's, and how many more there are."""
    groups: dict[tuple[str, str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.kernel, fault.measure, fault.detail), []).append(fault)
    texts = []
    for same in groups.values():
        targets = list(dict.fromkeys(fault.target for fault in same[1:] if fault.target != same[0].target))
        more = f" (and {len(same) - 1} more" + (f", also for {', '.join(targets)})" if targets else ")")
        texts.append(f"{same[0]}{more if len(same) > 1 else ''}")
    return texts


if __name__ == "__main__":
    sys.exit(main())
