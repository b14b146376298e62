"""A whole run: everything in the order of its worth, each part kept on disk before the next."""

from collections.abc import Callable, Iterator
from itertools import chain

import torch

import statehal
from gpu_parts import conv_rows, copying, kv_rows, memory_rows, peers, peers_conv, peers_kv, proofs
from gpu_parts.clock import DeviceClock, HostClock, failure
from gpu_parts.figures import Operation
from gpu_parts.kit import conformance
from gpu_parts.machine import FULL, TINY, Place, about, l2_bytes
from gpu_parts.measure import HEAD, measure
from gpu_parts.report import Report

METHOD = (
    "medians; graph_us: CUDA events around replays of a graph of 32 calls or more, by their number; eager_us: wall "
    "time of as many calls from Python, synchronised at the end; calls rotate over memory of four times the L2 cache, "
    "or over 128 memories (beyond_l2 says whether twice the cache was reached), and nothing is flushed; copy_us: the "
    "faster of a Triton copy and copy_ that read and write as many bytes, rotating alike"
)
KIT_INTERPRETED = "kv_move"
"""The checks of the kit that the small form runs."""

ROWS_UNTIL, KIT_UNTIL = 0.45, 0.85
"""Parts of the budget."""


def run(report: Report, device: str, backend: str | None, runs: int, budget: float, *, small: bool) -> None:
    """Fill a report; what fails is in it, and nothing is raised."""
    try:
        _run(report, device, backend, runs, budget, small=small)
    except Exception as error:  # with what there is kept
        report.faults.append(failure(error))
        report.save()


def _run(report: Report, device: str, backend: str | None, runs: int, budget: float, *, small: bool) -> None:
    if not small:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    hal = statehal.bind(device, backend or ("cuda_triton" if small else None))
    clock = HostClock() if small else DeviceClock(runs)
    place = Place(hal, TINY if small else FULL, l2_bytes(hal.device), single=small)
    report.about = about(hal) | {"goals": "for H100 and H200", "method": METHOD}
    report.save()
    report.tell(f"{report.about['hardware']}, {hal.backend}, evidence: {report.about['evidence']}")
    report.part = "rows"
    copies = copying.Copies(place, clock)
    report.add(report.copies, copies.calibrate(), copying.line)
    report.tell(HEAD)
    measure(every_row(place), place, clock, copies, report, ROWS_UNTIL * budget)
    report.part = "graphs"
    for proof in proofs.graphs(every_row(Place(hal, TINY, 0, single=True)), hal.device):
        report.add(report.graphs, proof, proofs.line)
    report.part = "compile"
    compiler = "aot_eager" if small else "inductor"
    report.add(report.compiled, proofs.compiled(hal.device, hal.backend, compiler), proofs.line)
    report.part = "kit"
    left = KIT_UNTIL * budget - report.seconds
    report.kit = conformance(hal.device, hal.backend, left, KIT_INTERPRETED if small else None)
    report.tell(f"conformance kit: {report.kit['run']} of {report.kit['checks']} checks run, {report.kit['counts']}")
    report.save()
    report.part = "peers"
    others = chain(peers_kv.peers(place), peers_conv.peers(place))
    for peer in peers.measure(others, place, clock, report.rows):
        if peer.status != "absent":
            report.tell(peers.line(peer))
        report.peers.append(peer)
        report.save()
        if report.seconds > budget:
            report.tell("no time is left for further peers")
            break
    report.tell(peers.absent(report.peers))
    report.part, report.finished = "done", True
    report.save()


def every_row(place: Place) -> Iterator[Callable[[], Operation]]:
    """Makers of all operations, so that each takes its memory only while it is used."""
    return chain(kv_rows.rows(place), memory_rows.rows(place), conv_rows.rows(place))
