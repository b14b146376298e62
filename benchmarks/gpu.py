"""What the Triton backend does on one GPU: times beside a copy, graphs, compilation, the conformance kit.

``python benchmarks/gpu.py [--json [FILE]] [--budget SECONDS]`` takes less than six minutes and downloads nothing;
without a GPU it says so and is done. The exit code is 1 where a goal is missed, 2 where something failed.
``--device cpu --interpret`` runs a small form of it by Triton's interpreter, whose times mean nothing.
"""

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_parts.report import Report

GRACE = 20
"""Seconds past the budget after which a run is cut off, whatever it is doing."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON there, whole after every row")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", default=None)
    parser.add_argument("--runs", type=int, default=20, help="timed replays a row")
    parser.add_argument("--budget", type=float, default=330, metavar="SECONDS", help="of the whole run (default 330)")
    parser.add_argument("--interpret", action="store_true", help="with --device cpu: small, kernels interpreted")
    return parser


def main() -> int:
    arguments = options().parse_args()
    if arguments.interpret != (arguments.device == "cpu"):
        options().error("--interpret and --device cpu go together")
    if arguments.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton decides when it defines a kernel
    import torch

    if not arguments.interpret and not torch.cuda.is_available():
        print("gpu: torch finds no CUDA GPU, so nothing is measured (--device cpu --interpret runs a small form)")
        return 0
    from gpu_parts.report import Report
    from gpu_parts.whole import run

    to_stdout = arguments.json == "-"
    report = Report(Path(arguments.json) if arguments.json and not to_stdout else None, quiet=to_stdout)
    guard = threading.Timer(arguments.budget + GRACE, cut_off, (report,))
    guard.daemon = True
    guard.start()
    run(report, arguments.device, arguments.backend, arguments.runs, arguments.budget, small=arguments.interpret)
    guard.cancel()
    if to_stdout:
        print(json.dumps(report.as_json()))
    for text in (*report.failures, *(f"goal missed: {text}" for text in report.missed)):
        print(text, file=sys.stderr)
    return report.status


def cut_off(report: "Report") -> None:
    """Keep what there is and end the process, which may wait for a device that never answers."""
    text = f"cut off after {report.seconds:.0f} seconds, in its part {report.part!r}"
    if report.part != "peers":  # which may compile for minutes, and are not ours
        report.faults.append(text)
    report.save()
    print(text, file=sys.stderr, flush=True)
    os._exit(report.status)


if __name__ == "__main__":
    sys.exit(main())
