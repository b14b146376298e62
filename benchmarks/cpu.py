"""What the CPU backend's operations take beside a copy, other implementations and their goals.

``python benchmarks/cpu.py [--engine LIBRARY] [--compile] [--publish]`` takes some minutes on one thread. Others run in
the same rounds where they are installed: transformers' fallbacks, chains of torch, and an engine's operators, of whose
library the path is given. ``--publish`` writes ``benchmarks/results/``, ``docs/cpu.svg`` and the table of
``docs/cpu.md``.
"""

import argparse
import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import statehal
from cpu_parts import conv, rows
from cpu_parts.chart import chart
from cpu_parts.goals import TOUCHED
from cpu_parts.page import line, put, section
from cpu_parts.peers import Tools, load_engine, peers_of
from statehal.bench import OPERATIONS, Operation, Row, measure
from statehal.bench.operation import Call

ROOT = Path(__file__).resolve().parents[1]
PEERS = [*conv.PEERS, *rows.PEERS]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of malloc.h
LARGEST_KEPT = 32 << 20
"""Bytes from which on glibc's own adjustment leaves an allocation to the system."""

DEFAULTS = {M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: LARGEST_KEPT, M_TRIM_THRESHOLD: 2 * LARGEST_KEPT}
"""As glibc comes, once its own adjustment has ended: that gives memory back from twice as much on as it maps anew."""

MANY = 101
"""Rounds of the shortest operations, which have a call for each."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--rounds", type=int, default=21, metavar="N", help="of which medians are, at least (default 21)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="operations with this in their names")
    parser.add_argument("--engine", metavar="LIBRARY", help="an engine's library of operators, such as _C.abi3.so")
    parser.add_argument("--engine-name", metavar="TEXT", default="an engine", help="what the page calls it")
    parser.add_argument("--compile", action="store_true", help="chains of torch by torch.compile too, which takes long")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON there")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/results, docs/cpu.svg and docs/cpu.md")
    return parser


def main() -> int:
    arguments = options().parse_args()
    if arguments.publish and arguments.only:
        options().error("--publish takes whole runs, not --only")
    binding = statehal.bind("cpu")
    tools = Tools(load_engine(arguments.engine) if arguments.engine else None, arguments.compile)
    about = {
        "processor": processor(),
        "backend": binding.backend,
        "isa": binding.describe().details.get("isa", binding.backend),
        "rounds": arguments.rounds,
        "torch": torch.__version__,
        "transformers": installed("transformers"),
        "engine": f", {arguments.engine_name}" if arguments.engine else "",
    }
    quiet = arguments.json == "-"
    measured: list[Row] = []
    absent: dict[str, str] = {}
    torch.set_num_threads(1)
    set_allocator(DEFAULTS)
    for make in OPERATIONS:
        if arguments.only not in make.__name__:
            continue
        for operation in make(binding):
            peers, missing = peers_of(operation, PEERS, tools)
            absent |= missing
            often = max(arguments.rounds, min(MANY, len(operation.calls)))
            measured.append(measured_row(operation, often, peers))
            print(line(measured[-1]), file=sys.stderr if quiet else sys.stdout, flush=True)
    for name, reason in absent.items():
        print(f"not measured: {name}: {reason}", file=sys.stderr)
    report = {"benchmark": "cpu", "about": about, "rows": [asdict(row) for row in measured], "absent": absent}
    write(report, measured, arguments)
    return 0


def measured_row(operation: Operation, rounds: int, peers: dict[str, list[Call]]) -> Row:
    """The row; where results may be mapped anew at each call, with a second figure of peers where they are not."""
    if not peers or operation.nbytes // 2 < LARGEST_KEPT:
        return measure(operation, rounds, peers)
    row = measure(operation, rounds, peers)
    with touched_memory():
        touched = measure(operation, rounds, peers)
    return replace(row, peers={**row.peers, **{f"{name}{TOUCHED}": times for name, times in touched.peers.items()}})


def write(report: dict[str, Any], measured: list[Row], arguments: argparse.Namespace) -> None:
    """Whatever was asked for."""
    text = json.dumps(report, indent=1) + "\n"
    if arguments.json == "-":
        print(text, end="")
    elif arguments.json:
        Path(arguments.json).write_text(text, encoding="utf-8")
    if arguments.publish:
        about = report["about"]
        slug = re.sub(r"\W+", "-", about["processor"]).strip("-").lower()
        (ROOT / f"benchmarks/results/{slug}.json").write_text(text, encoding="utf-8")
        title = f"statehal's CPU backend on {about['processor']}"
        (ROOT / "docs/cpu.svg").write_text(chart(measured, title) + "\n", encoding="utf-8")
        page = ROOT / "docs/cpu.md"
        page.write_text(put(page.read_text(encoding="utf-8"), section(measured, about)), encoding="utf-8")


def set_allocator(settings: dict[int, int]) -> None:
    """Set options of glibc's allocator, where it is that, and give back what is free."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt") and hasattr(library, "malloc_trim"):
        for name, value in settings.items():
            library.mallopt(name, value)
        library.malloc_trim(0)


@contextmanager
def touched_memory() -> Iterator[None]:
    """Let results that others allocate lie in memory that was touched before, as with allocators that keep it."""
    set_allocator({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1})
    try:
        yield
    finally:
        set_allocator(DEFAULTS)


def processor() -> str:
    """The name that the system gives the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [one.partition(":")[2].strip() for one in lines if one.startswith("model name")]
    return names[0] if names else "an unnamed processor"


def installed(name: str) -> str:
    """The version of a distribution, or that there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    sys.exit(main())
