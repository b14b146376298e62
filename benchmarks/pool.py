"""What allocation and translation cost the host: medians, beside a list append and pop loop of the same length.

``python benchmarks/pool.py [--json] [--runs N]``; the exit code is 1 where a bar, set for one ordinary core, is missed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch

from statehal import Attention, ConvRecurrent, bind
from statehal.pool import StatePool

PAGES, IDS, PAGE_SIZE = 8, 64, 16


@dataclass(frozen=True)
class Row:
    """One measurement: microseconds, and how many times what a list loop of the same length takes."""

    name: str
    median_us: float
    p90_us: float
    list_us: float
    ratio: float
    bar_us: float
    aim_us: float | None
    passed: bool


def clock(action: Callable[[], object], runs: int) -> list[float]:
    """Sorted microseconds of single calls, after a warm-up."""
    for _ in range(runs // 10 + 1):
        action()
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        action()
        times.append((time.perf_counter_ns() - start) / 1000)
    return sorted(times)


def list_loop(length: int) -> Callable[[], None]:
    """Append ``length`` integers to a list and pop them again."""
    held: list[int] = []

    def run() -> None:
        for one in range(length):
            held.append(one)  # noqa: PERF402 (the loop is what is measured)
        for _ in range(length):
            held.pop()

    return run


def measure(name: str, action: Callable[[], object], length: int, bar: float, aim: float | None, runs: int) -> Row:
    """Time an action, and a list loop of that length right after it."""
    times, plain = clock(action, runs), clock(list_loop(length), runs)
    median, base = statistics.median(times), statistics.median(plain)
    p90 = times[int(0.9 * len(times))]
    return Row(name, round(median, 2), round(p90, 2), round(base, 2), round(median / base, 1), bar, aim, median <= bar)


def alloc_and_free(pool: StatePool, names: str | None) -> None:
    """Take ``PAGES`` pages and give them back."""
    pool.free(pool.alloc(PAGES * PAGE_SIZE, names))


def rows(device: str, backend: str | None, runs: int) -> list[Row]:
    """All measurements."""
    hal = bind(device, backend)
    full = Attention("full", layers=(0, 2), kv_heads=8, head_dim=128, dtype="bfloat16")
    swa = Attention("swa", layers=(1, 3), kv_heads=8, head_dim=128, window=128, dtype="bfloat16")
    gdn = ConvRecurrent("gdn", (4,), 8192, 4, "bfloat16", state=(32, 128, 128))
    shared = hal.allocate(hal.plan([full, swa, gdn], total_bytes=2**28, page_size=PAGE_SIZE))
    single = hal.allocate(hal.plan([full], total_bytes=2**26, page_size=PAGE_SIZE))
    result = []
    for name, pool, names in (
        ("alloc + free, slabs shared by three", shared, "full"),
        ("alloc + free, jointly in two of three", shared, None),
        ("alloc + free, a pool of one", single, "full"),
    ):
        action = partial(alloc_and_free, pool, names)
        result.append(measure(f"{name}, {PAGES} pages", action, PAGES, 40, 20, runs))
    pages, sub = shared.alloc(IDS, "full"), shared["full"]
    for dtype in (torch.int64, torch.int32):
        virtual = sub.space("virtual").assume(pages.token_ids().tensor.to(dtype))
        name = f"translate {IDS} {str(dtype).removeprefix('torch.')} ids"
        result.append(measure(name, partial(sub.kernel_ids, virtual), IDS, 30, None, runs))
        out = sub.kernel_buffer(IDS, dtype=dtype)
        result.append(measure(f"{name} into out", partial(sub.kernel_ids, virtual, out), IDS, 30, None, runs))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--runs", type=int, default=5000, help="calls of each action")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured = rows(arguments.device, arguments.backend, arguments.runs)
    if arguments.json:
        about = {"torch": torch.__version__, "device": arguments.device}
        print(json.dumps({**about, "rows": [asdict(row) for row in measured]}))
    else:
        print(f"{'':45}{'median us':>10}{'p90 us':>10}{'list us':>10}{'ratio':>8}{'bar us':>8}")
        for row in measured:
            figures = f"{row.median_us:>10}{row.p90_us:>10}{row.list_us:>10}{row.ratio:>8}{row.bar_us:>8}"
            print(f"{row.name:45}{figures}{'' if row.passed else '  missed'}")
    return 0 if all(row.passed for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
