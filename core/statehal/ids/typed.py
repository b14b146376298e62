"""The three types of ids: integer tensors that carry their space. All are pytrees."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from statehal.errors import ArgumentError
from statehal.ids.epochs import Epoch
from statehal.ids.spaces import IdSpace

if TYPE_CHECKING:
    from typing import Self


class TypedIds:
    """Integer tensors of one space; aliases what it was made from and copies nothing.

    Attributes:
        space: what the ids count.
        tensors: one tensor; for kernel ids one of equal shape for each address form in use.
        epoch: the pool's epoch when they were made; later compactions make physical and kernel ids stale.
    """

    __slots__ = ("_epoch", "space", "tensors")

    def __init__(self, space: IdSpace, tensors: Sequence[torch.Tensor], epoch: Epoch | int | list[Epoch]) -> None:
        self.space = space
        self.tensors = tuple(tensors)
        if isinstance(epoch, int):
            now = None if space.pool is None else space.pool.present
            epoch = now if now is not None and now.number == epoch else Epoch(epoch)
        self._epoch = epoch if isinstance(epoch, list) else [epoch]  # one cell for all parts of a buffer

    @property
    def epoch(self) -> int:
        """See above; translating into a buffer again renews it for every part that was sliced from it."""
        return self._epoch[0].number

    @property
    def live(self) -> bool:
        """Whether no compaction came since; ids that were copied or unpickled do not know, and say no."""
        return self._epoch[0].live

    def renew(self, epoch: Epoch) -> None:
        """Say that the tensors have been translated again, in ``epoch``: these ids and every part sliced from them."""
        self._epoch[0] = epoch

    @property
    def tensor(self) -> torch.Tensor:
        """The only tensor.

        Raises:
            ArgumentError: there are several; ask ``of(form)``.
        """
        if len(self.tensors) != 1:
            raise ArgumentError(f"{self.space} has {len(self.tensors)} tensors, one an address form: ask of(form)")
        return self.tensors[0]

    @property
    def shape(self) -> torch.Size:
        """Shape that all tensors have."""
        return self.tensors[0].shape

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> "Self":
        """The same index of every tensor."""
        return type(self)(self.space, tuple(tensor[index] for tensor in self.tensors), self._epoch)

    def reshape(self, *shape: int) -> "Self":
        """The same ids in another shape."""
        return type(self)(self.space, tuple(tensor.reshape(*shape) for tensor in self.tensors), self._epoch)

    def __repr__(self) -> str:
        head = self.tensors[0]
        return f"{type(self).__name__}({self.space}, {tuple(head.shape)} {head.dtype}, epoch {self.epoch})"


class VirtualIds(TypedIds):
    """What a host holds: ids before the page table. Compaction does not change them."""

    __slots__ = ()


class PhysicalIds(TypedIds):
    """Ids after the page table: the pages (or tokens in them) of one sub-pool."""

    __slots__ = ()


class KernelIds(TypedIds):
    """What kernels index views with: one tensor for each address form that the sub-pool's layout uses."""

    __slots__ = ()

    def of(self, form: object) -> torch.Tensor:
        """The tensor for one address form.

        Raises:
            ArgumentError: the sub-pool does not use that form.
        """
        forms = self.space.key.forms
        if form not in forms:
            raise ArgumentError(f"{self.space} has no ids of form {form}: it has {forms}")
        return self.tensors[forms.index(form)]


CLASSES: dict[str, type[TypedIds]] = {"virtual": VirtualIds, "physical": PhysicalIds, "kernel": KernelIds}


class _Context(tuple[Any, ...]):
    """Static part of a flattened ``TypedIds``: ``(space, epoch)``, equal when it names the same space and epoch."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and self[0].same(other[0]) and bool(self[1] == other[1])

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self[0].key, self[1]))


def _register(cls: type[TypedIds]) -> None:
    def flatten(ids: TypedIds) -> tuple[list[torch.Tensor], _Context]:
        return list(ids.tensors), _Context((ids.space, ids.epoch))

    def unflatten(tensors: Any, context: _Context) -> TypedIds:
        return cls(context[0], tuple(tensors), context[1])

    pytree.register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"statehal.{cls.__name__}")


for _cls in CLASSES.values():
    _register(_cls)
