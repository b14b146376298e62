"""Gather and scatter of 256-token blocks in canonical order, as a fraction of copying the same bytes, on one thread.

``python benchmarks/portability.py [--json] [--rounds N]``; a row and a copy take turns, and its ratio is the
median of the rounds' own. The exit code is 1 where a bar is missed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import torch

from statehal import Attention, Binding, ConvRecurrent, Latent, bind
from statehal.layout import PoolLayout, conv_window, page_major, token_major
from statehal.pool import Pages, plan
from statehal.portability import CanonicalState, Conversion, Grouping, RankSubPool
from statehal.spec import Spec

TOKENS = 256
FULL = Attention("full", tuple(range(16)), 8, 128, "bfloat16")
MLA = Latent("mla", tuple(range(32)), 512, 64, "bfloat16")
GDN = ConvRecurrent(
    "gdn", tuple(range(8)), 8192, 4, "bfloat16", sections=(2048, 2048, 4096), section_heads=(16, 16, 32),
    state=(32, 128, 128),
)  # fmt: skip
NHD, HND = page_major, partial(page_major, order="HND")
LAYOUTS: tuple[tuple[str, Spec, Callable[[Spec, int], PoolLayout], int, bool], ...] = (
    ("page-major NHD, pages of 16", FULL, NHD, 16, True),
    ("page-major HND, pages of 16", FULL, HND, 16, True),
    ("page-major HND, pages of 64", FULL, HND, 64, True),
    ("token-major, pages of 16", FULL, token_major, 16, True),
    ("page-major NHD, pages of 3", FULL, NHD, 3, False),
    ("latent, pages of 64", MLA, NHD, 64, True),
    ("conv + recurrent point", GDN, lambda spec, _: conv_window(spec), 16, False),
)
"""Name, spec, layout, page size, and whether a bar is set or the row is only shown."""

BARS = {"cpu": 0.5}
"""The least fraction of a copy, by backend; 0.25 for the others, which have no C++."""


@dataclass(frozen=True)
class Row:
    """One measurement: the median of the rounds' ratios, and their quartiles."""

    name: str
    mib: float
    moves: int
    microseconds: float
    of_copy: float
    lower: float
    upper: float
    bar: float | None

    @property
    def passed(self) -> bool:
        return self.bar is None or self.of_copy >= self.bar


@dataclass
class Task:
    """What is timed, beside a copy of as many bytes."""

    name: str
    action: Callable[[], object]
    nbytes: int
    moves: int
    bar: float | None


def share(hal: Binding, spec: Spec, layout: Callable[[Spec, int], PoolLayout], page_size: int) -> RankSubPool:
    """A pool of one sub-pool that holds a few objects."""
    divided = plan([spec], tokens=12 * TOKENS, requests=3, page_size=page_size, layouts=layout, waste_limit=0.2)
    return RankSubPool(hal.allocate(divided)[spec.name], [spec], grouping=Grouping.of([spec], object_tokens=TOKENS))


def spread(held: RankSubPool) -> Pages:
    """A handle whose pages lie apart from each other."""
    pool, name = held.subpool.pool, held.subpool.name
    if held.spec.kind == "slots":
        return pool.alloc(1, name)
    size = held.subpool.page_size
    pages, others = pool.alloc(size, name), []
    while pages.tokens < TOKENS:
        others.append(pool.alloc(size, name))
        pool.extend(pages, size)
    return pages


def tasks(hal: Binding) -> Iterator[Task]:
    """A gather and a restore of one object for each layout, and a copy between two layouts."""
    for name, spec, layout, page_size, barred in LAYOUTS:
        bar = BARS.get(hal.backend, 0.25) if barred else None
        held = share(hal, spec, layout, page_size)
        state, pages = CanonicalState(hal, held), spread(held)
        buffer = state.gather(pages)
        moves = len(state.plan)
        yield Task(f"gather, {name}", partial(state.gather, pages, out=buffer), buffer.numel(), moves, bar)
        yield Task(f"restore, {name}", partial(state.restore, pages, [buffer]), buffer.numel(), moves, bar)
    ends = share(hal, FULL, NHD, 16), share(hal, FULL, HND, 64)
    conversion, source, destination = Conversion(hal, *ends), spread(ends[0]), spread(ends[1])
    nbytes = ends[0].object.nbytes
    action = partial(conversion.copy, source, destination, TOKENS)
    yield Task("convert, NHD of 16 to HND of 64", action, nbytes, len(conversion.plan), None)


def timed(action: Callable[[], object]) -> float:
    """Microseconds that this thread worked for one call; what it waited for others on a shared machine is left out."""
    start = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - start) / 1000


def measure(task: Task, rounds: int) -> Row:
    """Time the task and a copy of as many bytes, turn by turn."""
    source, target = torch.zeros(task.nbytes, dtype=torch.uint8), torch.zeros(task.nbytes, dtype=torch.uint8)
    copy = partial(target.copy_, source)
    for _ in range(3):
        task.action()
        copy()
    pairs = [(timed(copy), timed(task.action)) for _ in range(rounds)]
    ratios = sorted(base / spent for base, spent in pairs)
    lower, middle, upper = (round(one, 3) for one in statistics.quantiles(ratios, n=4))
    spent = statistics.median(spent for _, spent in pairs)
    mib = round(task.nbytes / 2**20, 1)
    return Row(task.name, mib, task.moves, round(spent, 1), middle, lower, upper, task.bar)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each row")
    parser.add_argument("--backend", default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hal = bind("cpu", arguments.backend)
    rows = [measure(task, arguments.rounds) for task in tasks(hal)]
    if arguments.json:
        about = {"torch": torch.__version__, "backend": hal.backend}
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}))
    else:
        print(
            f"{'backend ' + hal.backend:46}{'MiB':>7}{'moves':>7}{'us':>10}{'of a copy':>11}{'quartiles':>15}{'bar':>6}"
        )
        for row in rows:
            quartiles = f"{row.lower:.2f} .. {row.upper:.2f}"
            figures = f"{row.mib:>7}{row.moves:>7}{row.microseconds:>10}{row.of_copy:>11.2f}{quartiles:>15}"
            print(f"{row.name:46}{figures}{row.bar or '':>6}{'' if row.passed else '  missed'}")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
