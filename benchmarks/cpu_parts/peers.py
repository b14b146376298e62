"""What else does the work of a row, where it is installed: made with inputs of its own, of the same sizes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from statehal.bench import Operation
from statehal.bench.operation import Call

Make = Callable[["Tools", int, int], list[Call]]
"""Calls for one size, as many as are asked for, which go through as much memory."""


@dataclass(frozen=True)
class Tools:
    """What peers may use.

    Attributes:
        engine: an engine's operators, by ``torch.ops``; ``None`` leaves them out.
        compiled: whether chains of torch are measured as ``torch.compile`` makes them, too.
    """

    engine: Any = None
    compiled: bool = False


@dataclass(frozen=True)
class Peer:
    """One implementation of one operation.

    Attributes:
        name: what it is called in tables.
        row: name of the operation that it stands beside.
        make: builds the calls.
        needs: ``"engine"``, ``"compiled"`` or nothing; without it the peer is left out.
    """

    name: str
    row: str
    make: Make
    needs: str = ""

    def given(self, tools: Tools) -> bool:
        """Whether its needs are met."""
        return not self.needs or bool(getattr(tools, self.needs))


def chain(
    name: str, row: str, make: Callable[[Callable[..., Any], int, int], list[Call]], plain: Callable[..., Any]
) -> list[Peer]:
    """A chain of torch's operators as it stands, and as ``torch.compile`` makes it; ``make`` is given the function."""

    def calls(function: Callable[..., Any], tools: Tools, size: int, count: int) -> list[Call]:
        return make(function, size, count)

    def compiled(tools: Tools, size: int, count: int) -> list[Call]:
        return make(torch.compile(plain, dynamic=False), size, count)

    return [Peer(name, row, partial(calls, plain)), Peer(f"torch.compile of {name}", row, compiled, "compiled")]


def load_engine(path: str) -> Any:
    """The operators of an engine's library, which registers them with torch."""
    torch.ops.load_library(path)
    return torch.ops._C


def peers_of(operation: Operation, peers: list[Peer], tools: Tools) -> tuple[dict[str, list[Call]], dict[str, str]]:
    """The calls of every peer of an operation, and why others have none."""
    made: dict[str, list[Call]] = {}
    absent: dict[str, str] = {}
    for peer in _beside(operation, peers, tools):
        try:
            made[peer.name] = peer.make(tools, int(operation.case.split()[0]), len(operation.calls))
            made[peer.name][0]()
        except Exception as error:  # another version of it raises what it likes
            made.pop(peer.name, None)
            absent[peer.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return made, absent


def _beside(operation: Operation, peers: list[Peer], tools: Tools) -> Iterator[Peer]:
    return (peer for peer in peers if peer.row == operation.name and peer.given(tools))
