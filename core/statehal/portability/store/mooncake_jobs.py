"""What a store on Mooncake asks of a lane: made and taken apart in the caller's thread, called in another."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from statehal.portability.store.mooncake_client import TOO_SHORT, MooncakeClient, coded
from statehal.portability.store.mooncake_lane import Lane, Named
from statehal.portability.store.outcome import Outcome
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes, encode
from statehal.portability.store.protocol import PartRef
from statehal.portability.store.reading import read_part

T = TypeVar("T")
Item: TypeAlias = tuple[PartRef, PartFormat, memoryview]
Job: TypeAlias = Callable[[MooncakeClient, Lane], Callable[[], T]]
MOST_PARTS = 512
"""Of one call: the client's queues have an end."""


def name_of(ref: PartRef) -> str:
    """What a part is called in the cluster."""
    return f"{ref.namespace.digest}/{ref.key}/{ref.part.id}"


def look(group: Sequence[Named], by_size: bool, client: MooncakeClient, lane: Lane) -> Callable[[], list[Outcome]]:
    """``Lane.look``."""
    return partial(lane.look, client, group, by_size)


def put(group: Sequence[Item], replaced: set[str], client: MooncakeClient, lane: Lane) -> Callable[[], list[int]]:
    """Copy parts into the lane, here and now: when the call is made the buffers may be somebody else's again."""
    sizes = [form.file_bytes for _, form, _ in group]
    memory, at = lane.reserve(sum(sizes)), 0
    for ref, form, view in group:
        encode(form, ref.key, view, memory[at : at + form.file_bytes])
        at += form.file_bytes
    names = [name_of(ref) for ref, _, _ in group]
    return partial(lane.put, client, names, sizes, [name for name in names if name in replaced])


def get(group: Sequence[Item], client: MooncakeClient, lane: Lane) -> Callable[[], tuple[memoryview, list[int]]]:
    """Make room for parts, and read them."""
    sizes = [form.file_bytes for _, form, _ in group]
    lane.reserve(sum(sizes))
    return partial(lane.get, client, [name_of(ref) for ref, _, _ in group], sizes)


def taken(group: Sequence[Item], memory: memoryview, codes: Sequence[int]) -> Iterator[Outcome | None]:
    """Copy parts from the lane, checked; ``None`` of one that is longer than it should be."""
    at = 0
    for (ref, form, view), code in zip(group, codes, strict=True):
        if code == TOO_SHORT:
            yield None
        elif code < 0:
            yield coded("get", code)
        else:
            data = memory[at : at + min(code, form.file_bytes)]
            yield read_part(StoredBytes(data), code, form, ref.key, view, must_check=True)
        at += form.file_bytes


def read(item: Item, client: MooncakeClient, lane: Lane) -> Callable[[], tuple[Outcome, bytearray]]:
    """``Lane.read``."""
    ref, form, _ = item
    return partial(lane.read, client, name_of(ref), form, ref.key)


def copied(item: Item, answer: tuple[Outcome, bytearray] | Outcome) -> Outcome:
    """Copy a payload that was read elsewhere, if it is right."""
    if isinstance(answer, Outcome):
        return answer
    outcome, payload = answer
    if outcome:
        item[2][:] = payload
    return outcome


def remove(names: Sequence[str], client: MooncakeClient, lane: Lane) -> Callable[[], list[int]]:
    """``Lane.remove``."""
    return partial(lane.remove, client, names)


def stored(names: Sequence[str], client: MooncakeClient, lane: Lane) -> Callable[[], list[int]]:
    """``Lane.stored``."""
    return partial(lane.stored, client, names)
