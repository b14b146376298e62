"""Timing: medians of calls from Python, and of the same calls inside of a CUDA graph."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Calls = list[Callable[[], object]]

GRAPH_CALLS = 32
"""Calls that a graph holds at least, so that its own launch, once for all, weighs little."""


def failure(error: BaseException) -> str:
    """What was raised, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


class HostClock:
    """Of a device without graphs: the CPU that interprets kernels."""

    def __init__(self, runs: int = 1) -> None:
        self._runs = runs

    def eager_us(self, calls: Calls) -> float:
        """Microseconds of one call."""
        times = []
        for _ in range(self._runs):
            start = time.perf_counter()
            for call in calls:
                call()
            times.append((time.perf_counter() - start) * 1e6 / len(calls))
        return statistics.median(times)

    def graph_us(self, calls: Calls) -> float | None:
        """There are no graphs."""
        return None


class DeviceClock:
    """Of a CUDA device."""

    def __init__(self, runs: int = 20) -> None:
        self._runs = runs

    def eager_us(self, calls: Calls) -> float:
        """Microseconds of one call on the wall: what the host takes, or the device where that takes longer."""
        for call in calls:
            call()  # compiles, and fills what is filled at first use
        repeats = -(-GRAPH_CALLS // len(calls))
        times = []
        for _ in range(max(3, self._runs // 4)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(repeats):
                for call in calls:
                    call()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e6 / (repeats * len(calls)))
        return statistics.median(times)

    def graph_us(self, calls: Calls) -> float | None:
        """Microseconds of one call in a graph of all of them, several times over, by events around its replay."""
        repeats = -(-GRAPH_CALLS // len(calls))
        count = len(calls) * repeats

        def every() -> None:
            for call in calls:
                call()

        graph = capture(every, repeats)
        graph.replay()
        times = []
        for _ in range(self._runs):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(float(begin.elapsed_time(end)) * 1e3 / count)
        return statistics.median(times)


def capture(call: Callable[[], object], repeats: int = 1) -> Any:
    """A CUDA graph of a call; first it is done on a side stream, because lazy loading is no part of a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    return graph
