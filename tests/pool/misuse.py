"""Every kind of misuse; each is an error that leaves the pool as it was. Returns whether it could be tried."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pool.model import Claim
from pool.shapes import SHAPES
from pool.twin import Twin
from statehal import Binding, bind
from statehal.pool import Pages

Handle = tuple[Pages, Claim] | None
MISUSES: dict[str, Callable[[Twin, Handle, int], bool]] = {}


def kind(function: Callable[[Twin, Handle, int], bool]) -> Callable[[Twin, Handle, int], bool]:
    MISUSES[function.__name__.replace("_", " ")] = function
    return function


@cache
def binding() -> Binding:
    """The reference backend on the CPU."""
    return bind("cpu", "reference")


@cache
def stranger() -> Pages:
    """A handle of another pool, with the same family and ids that may be in use here too."""
    return binding().allocate(SHAPES[0].plan).alloc(5)


def some_name(twin: Twin, number: int) -> str:
    return list(twin.model.rooms)[number % len(twin.model.rooms)]


@kind
def free_of_the_sink(twin: Twin, handle: Handle, number: int) -> bool:
    twin.refuse("SinkPage", lambda: twin.pool[some_name(twin, number)].free(0))
    return True


@kind
def free_out_of_range(twin: Twin, handle: Handle, number: int) -> bool:
    name = some_name(twin, number)
    beyond = twin.model.places.virtual_pages(twin.model.families[twin.model.rooms[name].family])
    wrong = (-1, -1 - number, beyond, beyond + number, 10**6)[number % 5]
    twin.refuse("PageOutOfRange", lambda: twin.pool[name].free(wrong))
    return True


@kind
def free_of_a_free_page(twin: Twin, handle: Handle, number: int) -> bool:
    name = some_name(twin, number)
    rooms = twin.model.families[twin.model.rooms[name].family]
    free = [
        v
        for v in range(1, twin.model.places.virtual_pages(rooms))
        if not any(twin.model.holders[room.name, v] for room in rooms)
    ]
    if free:
        twin.refuse("DoubleFree", lambda: twin.pool[name].free(free[number % len(free)]))
    return bool(free)


@kind
def free_of_a_tensor(twin: Twin, handle: Handle, number: int) -> bool:
    wrong: Any = (torch.tensor([1]), torch.tensor(1), [torch.tensor(1)], None, "1", 1.0, [None])[number % 7]
    twin.refuse("ArgumentError", lambda: twin.pool[some_name(twin, number)].free(wrong))
    return True


@kind
def free_of_handles_and_numbers(twin: Twin, handle: Handle, number: int) -> bool:
    if handle is None:
        return False
    mixture: Any = [[handle[0], 1], [1, handle[0]], [handle[0], None]][number % 3]
    twin.refuse("ArgumentError", lambda: twin.pool.free(mixture))
    return True


@kind
def handle_of_another_pool(twin: Twin, handle: Handle, number: int) -> bool:
    pool, foreign, name = twin.pool, stranger(), some_name(twin, number)
    calls: list[Callable[[], object]] = [
        lambda: pool.free(foreign),
        lambda: pool.free([foreign]),
        lambda: pool[name].free(foreign),
        lambda: pool.extend(foreign, 1),
        lambda: pool.truncate(foreign, 0),
        lambda: pool.retain(foreign),
        lambda: pool.fork(foreign),
        lambda: pool.evict(name, foreign, 4),
        lambda: pool.pin(foreign),
    ]
    twin.refuse("ForeignPages", calls[number % len(calls)])
    return True


@kind
def handle_of_another_family(twin: Twin, handle: Handle, number: int) -> bool:
    others = [room.name for room in twin.model.rooms.values() if handle and room.family != handle[1].family]
    if handle is None or not others or not twin.usable(handle[1]):
        return False
    pool, name = twin.pool, others[number % len(others)]
    calls: list[Callable[[], object]] = [
        lambda: pool[name].free(handle[0]),
        lambda: pool[name].free([handle[0]]),
        lambda: pool.evict(name, handle[0], handle[1].tokens),
    ]
    twin.refuse("ForeignPages", calls[number % len(calls)])
    return True


@kind
def slice_where_a_whole_handle_is_needed(twin: Twin, handle: Handle, number: int) -> bool:
    if handle is None or not handle[1].entries:
        return False
    part = handle[0][0:1]
    calls: list[Callable[[], object]] = [lambda: twin.pool.extend(part, 1), lambda: twin.pool.truncate(part, 0)]
    twin.refuse("ArgumentError", calls[number % len(calls)])
    return True


@kind
def counts_that_make_no_sense(twin: Twin, handle: Handle, number: int) -> bool:
    if handle is None:
        return False
    pool, (pages, claim) = twin.pool, handle
    calls: list[Callable[[], object]] = [
        lambda: pool.alloc(-1, some_name(twin, number)),
        lambda: pool.alloc(1.0, some_name(twin, number)),  # type: ignore[arg-type]
        lambda: pool.extend(pages, -1),
        lambda: pool.truncate(pages, -1),
        lambda: pool.truncate(pages, claim.tokens + 1),
        lambda: pool.evict(claim.names[0], pages, -1),
        lambda: pool.evict(claim.names[0], pages, claim.tokens + 1),
        lambda: pages.token_ids(0, claim.tokens + 1),
        lambda: pool["nobody"],
        lambda: pool.alloc(1, ()),
    ]
    twin.refuse("ArgumentError", calls[number % len(calls)])
    return True


@kind
def joint_allocation_across_families(twin: Twin, handle: Handle, number: int) -> bool:
    names = list(twin.model.rooms)
    if len(twin.model.families) > 1:
        twin.refuse("ArgumentError", lambda: twin.pool.alloc(1, names))
        twin.refuse("ArgumentError", lambda: twin.pool.free(1))
    return len(twin.model.families) > 1


@kind
def use_after_free(twin: Twin, handle: Handle, number: int) -> bool:
    if not twin.dead or not twin.dead[-1][1].entries:
        return False
    pool, pages = twin.pool, twin.dead[-1][0]
    calls: list[Callable[[], object]] = [
        lambda: pool.extend(pages, 1),
        lambda: pool.retain(pages),
        lambda: pool.fork(pages, 0),
        lambda: pool.pin(pages),
        lambda: pages.page_ids(),
        lambda: pages.token_ids(),
    ]
    twin.refuse("UseAfterFree", calls[number % len(calls)])
    twin.refuse("DoubleFree", lambda: pool.free(pages if number % 2 else pages[:1]))
    return True


@kind
def ids_of_the_wrong_space(twin: Twin, handle: Handle, number: int) -> bool:
    subpool = twin.pool[some_name(twin, number)]
    raw = torch.tensor([1])
    strangers: tuple[Any, ...] = (
        raw,
        stranger().token_ids(),
        subpool.space("physical").assume(raw),
        subpool.space("kernel").assume(*[raw for _ in subpool.forms]),
    )
    wrong = strangers[number % len(strangers)]
    twin.refuse("WrongIdSpace", lambda: subpool.kernel_ids(wrong))
    return True


@kind
def compaction_with_a_step_in_flight(twin: Twin, handle: Handle, number: int) -> bool:
    with twin.pool.step():
        twin.refuse("StepsInFlight", lambda: twin.pool.compact(10))
        if number % 2:
            with twin.pool.step():
                pass
            twin.refuse("StepsInFlight", lambda: twin.pool.compact(0))
    return True
