"""Kernels of other engines for the same work, where they are installed, in memory of their own layouts."""

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

import torch

from gpu_parts.clock import Calls, DeviceClock, HostClock, failure
from gpu_parts.figures import PeerRow, Row
from gpu_parts.machine import Place


@dataclass(frozen=True)
class Peer:
    """A kernel of another engine.

    Attributes:
        name: engine and function.
        modules: that it is imported from; without the first one it is absent.
        row: name of the row that it stands beside, and the beginning of its case.
        make: builds the calls, over as many memories as the row.
    """

    name: str
    modules: tuple[str, ...]
    row: tuple[str, str]
    make: Callable[[Place, int], Calls]


def measure(
    peers: Iterable[Peer], place: Place, clock: DeviceClock | HostClock, rows: Iterable[Row]
) -> Iterable[PeerRow]:
    """The figures of each peer; one that fails says why, and is no failure of the run."""
    known = {(row.name, row.case): row for row in rows}
    for peer in peers:
        name, start = peer.row
        ours = next((row for key, row in known.items() if key[0] == name and key[1].startswith(start)), None)
        if ours is None or ours.failed:
            continue
        made = PeerRow(peer.name, f"{ours.name}, {ours.case}", "measured")
        try:
            for module in peer.modules:
                import_module(module)
        except Exception as error:  # an engine built for another torch raises what it likes
            made.status, made.reason = "absent", failure(error)
        else:
            _time(made, peer, place, clock, ours)
        yield made


def _time(made: PeerRow, peer: Peer, place: Place, clock: DeviceClock | HostClock, ours: Row) -> None:
    try:
        calls = peer.make(place, ours.sets)
        made.eager_us = clock.eager_us(calls)
        try:
            made.graph_us = clock.graph_us(calls)
        except Exception as error:
            made.reason = f"no graph: {failure(error)}"
            torch.cuda.synchronize()
        both = (made.graph_us, ours.graph_us) if made.graph_us and ours.graph_us else (made.eager_us, ours.eager_us)
        if both[0] and both[1]:
            made.times_ours = both[0] / both[1]
    except Exception as error:
        made.status, made.reason = "failed", failure(error)
    gc.collect()


def line(peer: PeerRow) -> str:
    """A row of the table."""
    head = f"{peer.peer:44}{peer.row:60}"
    if peer.status != "measured":
        return f"{head}  {peer.status}: {peer.reason}"
    graph = f"{peer.graph_us:10.2f}" if peer.graph_us is not None else f"{'':10}"
    return f"{head}{peer.eager_us or 0:10.1f}{graph}  {peer.times_ours or 0:.2f} x ours  {peer.reason}"


def absent(rows: list[PeerRow]) -> str:
    """One line on those that are not installed."""
    names = dict.fromkeys(row.peer for row in rows if row.status == "absent")
    return f"peers not installed: {', '.join(names) or 'none'}"
