"""What a store on Mooncake asks of a lane: made and taken apart in the caller's thread, called in another."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from statehal.portability.store import mooncake_calls as calls
from statehal.portability.store.mooncake_client import TOO_SHORT, MooncakeClient, coded
from statehal.portability.store.mooncake_lane import Lane, Named
from statehal.portability.store.outcome import Outcome
from statehal.portability.store.part_format import PartFormat
from statehal.portability.store.part_memory import StoredBytes, encode
from statehal.portability.store.protocol import PartRef
from statehal.portability.store.reading import read_part

T = TypeVar("T")
A = TypeVar("A")
Job: TypeAlias = Callable[[MooncakeClient, Lane], Callable[[], T]]
MOST_PARTS = 512
"""Of one call: the client's queues have an end."""


class Item(NamedTuple):
    """A part that is moved.

    Attributes:
        view: its payload in the caller's memory.
        name: in the cluster.
        pointer: where the payload lies, if it is moved from there or to there.
    """

    ref: PartRef
    form: PartFormat
    view: memoryview
    name: str
    pointer: int = 0


def name_of(ref: PartRef) -> str:
    """What a part is called in the cluster."""
    return f"{ref.namespace.digest}/{ref.key}/{ref.part.id}"


def look(group: Sequence[Named], by_size: bool, client: MooncakeClient, lane: Lane) -> Callable[[], list[Outcome]]:
    """``Lane.look``."""
    return partial(lane.look, client, group, by_size)


class Mover(Protocol[A]):
    """How parts get from the caller's memory to the client and back: through a lane, or from where they lie.

    Attributes:
        call_bytes: of the parts of one call, unless one alone is larger.
    """

    call_bytes: int

    def put(
        self, group: Sequence[Item], replaced: set[str], client: MooncakeClient, lane: Lane
    ) -> Callable[[], list[int]]:
        """A call that stores parts; of each 0 or an error."""
        ...

    def get(self, group: Sequence[Item], client: MooncakeClient, lane: Lane) -> Callable[[], A]:
        """A call that reads parts."""
        ...

    def taken(self, group: Sequence[Item], answer: A) -> Iterator[Outcome | None]:
        """Take parts from what the call answered, checked; ``None`` of one that ``read`` has to read."""
        ...


class Copying:
    """Parts are put together, and taken apart, in the memory of a lane: the buffers are the caller's alone."""

    def __init__(self, call_bytes: int) -> None:
        self.call_bytes = call_bytes

    def put(
        self, group: Sequence[Item], replaced: set[str], client: MooncakeClient, lane: Lane
    ) -> Callable[[], list[int]]:
        """Copy parts here and now: when the call is made the buffers may be somebody else's again."""
        sizes = [item.form.file_bytes for item in group]
        memory, at = lane.reserve(sum(sizes)), 0
        for ref, form, view, *_ in group:
            encode(form, ref.key, view, memory[at : at + form.file_bytes])
            at += form.file_bytes
        names = [item.name for item in group]
        return partial(lane.put, client, names, sizes, [name for name in names if name in replaced])

    def get(
        self, group: Sequence[Item], client: MooncakeClient, lane: Lane
    ) -> Callable[[], tuple[memoryview, list[int]]]:
        """Make room for parts, and read them."""
        sizes = [item.form.file_bytes for item in group]
        lane.reserve(sum(sizes))
        return partial(lane.get, client, [item.name for item in group], sizes)

    def taken(self, group: Sequence[Item], answer: tuple[memoryview, list[int]]) -> Iterator[Outcome | None]:
        """Copy parts from the lane; one that is longer than it should be did not fit there."""
        (memory, codes), at = answer, 0
        for (ref, form, view, *_), code in zip(group, codes, strict=True):
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
    return partial(lane.read, client, item.name, item.form, item.ref.key)


def copied(item: Item, answer: tuple[Outcome, bytearray] | Outcome) -> Outcome:
    """Copy a payload that was read elsewhere, if it is right."""
    if isinstance(answer, Outcome):
        return answer
    outcome, payload = answer
    if outcome:
        item.view[:] = payload
    return outcome


def remove(names: Sequence[str], client: MooncakeClient, lane: Lane) -> Callable[[], list[int]]:
    """``calls.remove``."""
    return partial(calls.remove, client, names)
