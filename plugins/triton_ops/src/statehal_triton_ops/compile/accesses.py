"""Loads and stores of global memory: what a program moves, and in pieces of how many bytes.

What is moved stands in Triton's GPU dialect, one line a load or store of a tensor; the pieces are the instructions of
the optimised LLVM module. Source locations lead from one to the other, and sizes do where an optimisation merged these.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from statehal_triton_ops.compile.build import Compiled
from statehal_triton_ops.compile.instructions import Access, accesses
from statehal_triton_ops.compile.locations import Chain, MlirLocations
from statehal_triton_ops.compile.repeats import Repeats

NARROW = 8
"""Bytes: an access below is narrow."""

_MOVE = re.compile(r"(?:tt\.(load|store)|amd(?:g|gpu)\.buffer_(load|store)|ttg\.(async_copy)_global_to_local)\b")
_TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:!tt\.ptr<([^>]+)>|([a-z]\w*))")


@dataclass
class Move:
    """A load or store of a tensor.

    Attributes:
        kind: ``load`` or ``store``.
        moved_bytes: of the tensor, each address once; of all that an unrolled loop moves.
        element_bytes: of an element.
        thread_bytes: of a thread, at one time.
        chain: where it stands in the source.
        where: the same for people.
        widths: bytes of the accesses that it became.
        times: how often it stands in the text.
    """

    kind: str
    moved_bytes: int
    element_bytes: int
    thread_bytes: float
    chain: Chain
    where: str
    widths: list[int] = field(default_factory=list)
    times: int = 1

    @property
    def bulk(self) -> bool:
        """Each thread has enough of it to move 8 bytes at once."""
        return self.thread_bytes >= NARROW

    @property
    def narrow(self) -> bool:
        """Some access of it has less than 8 bytes."""
        return bool(self.widths) and min(self.widths) < NARROW


def moves(compiled: Compiled) -> list[Move]:
    """Every load and store of a kernel, with the widths of its accesses; what a loop repeats in the text is one."""
    lost: list[Access] = []
    by_place: dict[tuple[str, Chain, bool], Move] = {}
    for number, move in enumerate(_moves(compiled)):
        # one whose place is unknown is like no other
        same = by_place.setdefault((move.kind, move.chain or ((0, -number),), move.bulk), move)
        if same is not move:
            same.moved_bytes += move.moved_bytes
            same.thread_bytes = max(same.thread_bytes, move.thread_bytes)
            same.times += 1
    by_line: dict[tuple[str, Chain], list[Access]] = {}
    for access in accesses(compiled.llir):
        by_line.setdefault((access.kind, access.chain), []).append(access)
    for (kind, chain), made in by_line.items():
        small, bulk = (by_place.get((kind, chain, size)) for size in (False, True))
        if small is not None and bulk is not None:
            _share(made, small, bulk)
        elif (only := small or bulk) is not None:
            only.widths += [access.width for access in made]
        else:
            lost += made
    found = list(by_place.values())
    for access in lost:
        _attribute(access, found)
    return found


def _moves(compiled: Compiled) -> Iterator[Move]:
    locations, repeats = MlirLocations(compiled.ttgir), Repeats(compiled.ttgir)
    for number, line in enumerate(compiled.ttgir.splitlines()):
        found = _MOVE.search(line)
        if found is None:
            continue
        kind = "store" if "store" in (found[1], found[2]) else "load"
        types = line.rpartition(" loc(")[0].rpartition(" : ")[2]
        tensor = _TENSOR.search(types)
        if tensor:
            count, element = prod(map(int, tensor[1].split("x")[:-1])), tensor[2] or tensor[3]
        else:
            count, element = 1, types.split("!tt.ptr<")[-1].split(",")[0].rstrip("> ")
        size = _element_bytes(element)
        moved = max(int(count / repeats.of_access(number, line)), 1) * size
        yield Move(kind, moved, size, moved / compiled.threads, locations.of_line(line), locations.where(line))


def _element_bytes(name: str) -> int:
    if name.startswith("!tt.ptr"):
        return 8
    return max(int(re.sub(r"^[a-zA-Z]+", "", name).split("E")[0]) // 8, 1)


def _share(made: list[Access], small: Move, bulk: Move) -> None:
    """Tell accesses of a line that moves fields of any size apart.

    Where the wide ones make up the bulk, all narrow ones are of the small moves, however often a loop of these was
    unrolled. Else each small move has one, and further narrow ones are of the bulk.
    """
    wide = [access.width for access in made if access.width >= NARROW]
    narrow = [access.width for access in made if access.width < NARROW]
    own = len(narrow) if sum(wide) >= bulk.times * bulk.thread_bytes else small.times
    small.widths += narrow[:own]
    bulk.widths += wide + narrow[own:]


def _attribute(access: Access, found: list[Move]) -> None:
    """Give an access without a location to the move that it is likeliest of.

    Moves that have no access yet come first. A narrow access goes to a small move if one has elements that fit, else to
    the largest: a bulk move that was split below the elements of every small one is always noticed.
    """
    fitting = [move for move in found if move.kind == access.kind and move.element_bytes <= access.width]
    candidates = [move for move in fitting if not move.widths or access.width in move.widths] or fitting
    if not candidates:
        return
    small = [move for move in candidates if not move.bulk]
    if access.width < NARROW and small:
        small[0].widths.append(access.width)
    else:
        max(candidates, key=lambda move: move.moved_bytes).widths.append(access.width)
