"""Rounds of what is compared, and their medians."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

import torch

from statehal.bench.operation import Call, Operation
from statehal.bench.operations import OPERATIONS
from statehal.binding import Binding
from statehal.errors import ArgumentError, Unsupported
from statehal.pool.pool_memory import zeroed_bytes

OURS, COPY = "", "copy"


@dataclass(frozen=True)
class Row:
    """One operation.

    Attributes:
        name, case: what, and its sizes.
        us: microseconds of processor time of a call.
        copy_us: of a copy whose reads and writes are as many bytes.
        of_copy: how many times that.
        peers: by name, how many times ``us`` another implementation takes for the same.
    """

    name: str
    case: str
    us: float
    copy_us: float
    of_copy: float
    peers: Mapping[str, float] = field(default_factory=dict)


def compare(actions: Mapping[str, Sequence[Call]], rounds: int) -> dict[str, float]:
    """Median microseconds of processor time of a call of each action.

    Its calls are made in turn, one a round, and all once before. Time that other processes take counts for none.

    Raises:
        ArgumentError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise ArgumentError(f"{rounds} rounds have no median: expected at least 1")
    for calls in actions.values():
        for call in calls:
            call()
    times: dict[str, list[int]] = {name: [] for name in actions}
    turns = {name: cycle(calls) for name, calls in actions.items()}
    for _ in range(rounds):
        for name, turn in turns.items():
            call = next(turn)
            start = time.process_time_ns()
            call()
            times[name].append(time.process_time_ns() - start)
    return {name: statistics.median(taken) / 1000 for name, taken in times.items()}


def measure(operation: Operation, rounds: int, peers: Mapping[str, Sequence[Call]] | None = None) -> Row:
    """The row of one operation, beside a copy and then beside ``peers``, in as many rounds each.

    Peers have rounds of their own, with the operation again: what they leave in the caches is no part of its multiple
    of the copy.
    """
    took = _compare(operation, {COPY: copies(operation)}, rounds)
    us, copy_us = took[OURS], took[COPY]
    times: dict[str, float] = {}
    if peers:
        took = _compare(operation, peers, rounds)
        times = {name: took[name] / took[OURS] for name in peers}
    return Row(operation.name, operation.case, us, copy_us, us / copy_us, times)


def _compare(operation: Operation, others: Mapping[str, Sequence[Call]], rounds: int) -> dict[str, float]:
    """``compare``, of the operation and others, each as often in a row as the operation wants."""
    actions: dict[str, Sequence[Call]] = {OURS: operation.calls, **others}
    if operation.repeats > 1:
        again = partial(_repeat, operation.repeats)
        actions = {name: [partial(again, call) for call in calls] for name, calls in actions.items()}
    return {name: us / operation.repeats for name, us in compare(actions, rounds).items()}


def _repeat(times: int, call: Call) -> None:
    for _ in range(times):
        call()


def rows_of(binding: Binding, rounds: int, only: str = "") -> Iterator[Row]:
    """A row of every operation that the binding's backend offers and whose name has ``only`` in it; on one thread.

    Raises:
        ArgumentError: no operation has it, or ``rounds`` is below 1.
    """
    makes = [make for make in OPERATIONS if only in make.__name__]
    if not makes:
        names = ", ".join(make.__name__ for make in OPERATIONS)
        raise ArgumentError(f"no operation has {only!r} in its name: there are {names}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for make in makes:
            try:
                made = list(make(binding))
            except Unsupported:
                continue
            for operation in made:
                yield measure(operation, rounds)
    finally:
        torch.set_num_threads(threads)


def copies(operation: Operation) -> list[Callable[[], object]]:
    """A plain vectorised loop from memory to memory for each call: half of the bytes are read, half written.

    ``copy_`` stores past the caches where it sees fit; a loop that inverts all bits does nothing of that kind. Each
    call has memory of its own, so that a copy finds as little in the caches as the operation does.
    """
    words, count = max(1, operation.nbytes // 16), len(operation.calls)
    if operation.pooled:
        whole = zeroed_bytes(8 * words * count, torch.device("cpu")).view(torch.int64)
        targets = list(whole.split(words))
    else:
        targets = [torch.empty(words, dtype=torch.int64) for _ in operation.calls]
    return [partial(torch.bitwise_not, torch.ones(words, dtype=torch.int64), out=target) for target in targets]
