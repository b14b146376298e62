"""The ``statehal`` command; each subcommand is a module with ``add_parser(subparsers)`` and ``run(args) -> int``."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statehal.cli import bench, certify, check, doctor, plan, store, trace
from statehal.errors import StatehalError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

COMMANDS = {
    "bench": bench,
    "certify": certify,
    "check": check,
    "doctor": doctor,
    "plan": plan,
    "store": store,
    "trace": trace,
}
"""The commands by name."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; ``command`` of its result is a key of ``COMMANDS``."""
    parser = argparse.ArgumentParser(
        prog="statehal", description="A hardware-abstraction layer for the state that LLM inference keeps."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; an error of statehal is one line on stderr and status 1."""
    args = build_parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            # torch says so at import; nothing here needs NumPy, and it reads as a broken install
            warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
            status: int = COMMANDS[args.command].run(args)
        sys.stdout.flush()
    except StatehalError as error:
        print(f"statehal: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("statehal: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader, such as head, has left; Python must not complain again when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
