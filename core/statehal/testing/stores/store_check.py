"""What a check of stores is, and what it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from statehal.portability.store import BlockStore, PartRef

Need: TypeAlias = Literal["raw"]


@dataclass(frozen=True)
class StoreTarget:
    """A store under judgement, empty at first; every check gets one of its own.

    Attributes:
        open: a new object on the same contents, as another process would have it.
        read_raw: the stored bytes of a part, header and payload; ``None`` where there are none.
        write_raw: put other bytes in their place, behind the store's back. Without these two the checks of damage are
            left out, and a store that a damaged part can reach is not proven right.
    """

    open: Callable[[], BlockStore]
    read_raw: Callable[[PartRef], bytes | None] | None = None
    write_raw: Callable[[PartRef, bytes], None] | None = None

    @property
    def offers(self) -> frozenset[Need]:
        """What a check may need."""
        return frozenset({"raw"} if self.read_raw is not None and self.write_raw is not None else ())

    def raw(self, ref: PartRef) -> bytes:
        """The stored bytes of a part that was stored."""
        assert self.read_raw is not None
        found = self.read_raw(ref)
        assert found is not None, f"{ref} was stored, and there are no bytes of it"
        return found

    def damage(self, ref: PartRef, data: bytes) -> None:
        """Put other bytes in a part's place."""
        assert self.write_raw is not None
        self.write_raw(ref, data)


@dataclass(frozen=True)
class StoreCheck:
    """One property of ``BlockStore``.

    Attributes:
        name: ``"topic/property"``.
        statement: what the protocol says, one sentence; failures begin with it.
        run: raises ``AssertionError`` with evidence.
        needs: what a target must offer.
    """

    name: str
    statement: str
    run: Callable[[StoreTarget], None]
    needs: frozenset[Need] = frozenset()


REGISTERED: dict[str, StoreCheck] = {}
"""Every check by name; ``statehal.testing.stores.runner`` fills it."""


def store_check(topic: str, *needs: Need) -> Callable[[Callable[[StoreTarget], None]], Callable[[StoreTarget], None]]:
    """Register ``check_PROPERTY`` as ``topic/PROPERTY``; the first line of its docstring is the statement."""

    def register(run: Callable[[StoreTarget], None]) -> Callable[[StoreTarget], None]:
        name = f"{topic}/{run.__name__.removeprefix('check_')}"
        assert run.__doc__, f"{name} needs a docstring"
        assert name not in REGISTERED, f"two checks are named {name}"
        REGISTERED[name] = StoreCheck(name, run.__doc__.strip().splitlines()[0], run, frozenset(needs))
        return run

    return register
