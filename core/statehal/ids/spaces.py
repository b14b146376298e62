"""Id spaces: what a set of ids counts, and in which pool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from statehal.errors import ArgumentError, IdError, StaleIds, WrongIdSpace
from statehal.ids.epochs import Epoch

if TYPE_CHECKING:
    import torch

    from statehal.ids.typed import TypedIds

Kind = Literal["virtual", "physical", "kernel"]
"""Of ids: what a host holds, what the page table gives, what kernels index with."""

Unit = Literal["tokens", "pages"]
"""What an id counts."""


class SpaceKey(NamedTuple):
    """The stable name of a space: equal keys name one space, also after pickling.

    Attributes:
        pool: fingerprint of the pool.
        owner: the sub-pool, or for virtual ids the family of sub-pools allocated jointly.
        kind: virtual, physical or kernel.
        unit: tokens or pages; a conv or recurrent slot is a page.
        forms: for kernel ids the address forms, one tensor each.
    """

    pool: str
    owner: str
    kind: Kind
    unit: Unit
    forms: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.unit} of {self.owner!r} in pool {self.pool[:8]}"


class Liveness(Protocol):
    """What a pool tells its spaces: the present epoch, pending copies, and whether ids are live (a device sync)."""

    present: Epoch

    @property
    def copies_pending(self) -> bool:
        """Whether a page is still to be copied."""

    def flush(self) -> object:
        """Send the device all work that is pending."""

    def verify(self, key: SpaceKey, tensors: Sequence["torch.Tensor"]) -> None:
        """Raise ``WrongIdSpace`` unless every id that is not padding names a live page of the space."""


@dataclass(eq=False)
class IdSpace:
    """A space of ids. Spaces of a live pool are made once and compared by identity.

    Attributes:
        key: the stable name.
        pool: the pool's epoch and liveness; ``None`` in a space that was unpickled.
        check: whether ``assume`` verifies the ids, which costs a device sync.
        number: equal for equal keys in this process; ``torch.compile`` guards it by value and makes it a symbol, so
            that one graph serves many spaces.
    """

    key: SpaceKey
    pool: Liveness | None = None
    check: bool = False
    number: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.number = hash(self.key) & (2**62 - 1)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return IdSpace, (self.key,)

    def __str__(self) -> str:
        return str(self.key)

    def same(self, other: "IdSpace") -> bool:
        """Whether both name one space."""
        return other is self or other.key == self.key

    @property
    def epoch(self) -> int:
        """How often pages have been moved by compaction."""
        return 0 if self.pool is None else self.pool.present.number

    def assume(self, *tensors: "torch.Tensor") -> Any:
        """Declare that integer tensors hold ids of this space: the one door for raw tensors.

        Args:
            tensors: one int32 or int64 tensor; for kernel ids one of equal shape for each of ``key.forms``.

        Returns:
            ``VirtualIds``, ``PhysicalIds`` or ``KernelIds`` that alias the tensors.

        Raises:
            ArgumentError: wrong number, dtypes or shapes of tensors.
            WrongIdSpace: checking is on and an id is not a live one of this space.
        """
        from statehal.ids.typed import CLASSES

        expected = len(self.key.forms) if self.key.kind == "kernel" else 1
        if len(tensors) != expected:
            raise ArgumentError(f"{self} takes {expected} tensors of ids, one an address form: got {len(tensors)}")
        for tensor in tensors:
            if str(tensor.dtype) not in ("torch.int32", "torch.int64"):
                raise ArgumentError(f"ids of {self} must be int32 or int64: got {tensor.dtype}")
            if tensor.shape != tensors[0].shape:
                raise ArgumentError(f"ids of {self} must have one shape: got {[tuple(t.shape) for t in tensors]}")
        if self.check and self.pool is not None:
            self.pool.verify(self.key, tensors)
        return CLASSES[self.key.kind](self, tensors, self.epoch if self.pool is None else self.pool.present)

    def accept(self, ids: "TypedIds", where: str) -> tuple["torch.Tensor", ...]:
        """The tensors of ``ids`` if they are of this space and no compaction came since; no device sync.

        Args:
            where: who asks, for the error text, such as ``"write to layer 3 of 'swa'"``.

        Raises:
            WrongIdSpace: the ids are of another space, or are a bare tensor.
            StaleIds: a compaction moved pages after the ids were made.
        """
        space = getattr(ids, "space", None)
        if space is not self and (space is None or not self.same(space)):
            raise self.refusal(ids, where)
        if self.pool is not None and not ids.live and self.key.kind != "virtual" and ids.epoch != self.epoch:
            raise self.refusal(ids, where)
        if self.pool is not None and self.pool.copies_pending:
            self.pool.flush()  # a write to the source of a copy must come after it
        return ids.tensors

    def refusal(self, ids: object, where: str) -> IdError:
        """The error for ids that ``accept`` refuses, with its text."""
        space = getattr(ids, "space", None)
        if space is not None and self.same(space):
            return StaleIds(
                f"{where}: the ids are of epoch {getattr(ids, 'epoch', None)} and the pool is at {self.epoch}, because "
                f"a compaction moved pages in between; they could name pages of other requests (fix: translate the "
                f"virtual ids again)"
            )
        if space is None:
            return WrongIdSpace(
                f"{where} takes {self} but was given a bare {type(ids).__name__}, of which nothing says what it "
                f"counts; unnoticed, numbers of any other space would name rows of other requests (fix: "
                f"{self._giver()}, or declare a tensor with space.assume(tensor))"
            )
        return WrongIdSpace(self.mismatch(space, where))

    def mismatch(self, given: "IdSpace", where: str) -> str:
        """The text for ids of another space, with what would have happened and the call that gives the right ones."""
        own, other = self.key, given.key
        why = "which lie elsewhere"
        if other.pool != own.pool:
            why = "which are of other pages than those of that pool"
        elif other.kind == "virtual" and own.kind != "virtual":
            why = "which no page table was asked for"
        elif other.unit != own.unit:
            why = f"which are none of these {other.unit}"
        elif other.kind == own.kind:
            why = f"which are of other pages than those of {other.owner!r}"
        return (
            f"{where} takes {self} but was given {given}; unnoticed, the {own.unit} of {own.owner!r} with those "
            f"numbers, {why}, would be read or written (fix: {self._giver()})"
        )

    def _giver(self) -> str:
        """The call that gives ids of this space."""
        owner, tokens = self.key.owner, "token_ids" if self.key.unit == "tokens" else "page_ids"
        if self.key.kind == "virtual":
            return f"the handle's {tokens}(), of pages of {owner!r}"
        return f"pool[{owner!r}].{self.key.kind}_ids(virtual)"
