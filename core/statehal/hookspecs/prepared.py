"""What a backend makes of a layer's weights, made again when the weights change."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def watch(*tensors: "Tensor | None") -> "Callable[[], bool]":
    """A function that says whether tensors are still as they are now, so far as ``Prepared`` sees changes."""
    stamps = [
        (t, t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.shape, t.stride())
        for t in tensors
        if t is not None
    ]

    def same() -> bool:
        # asked at every call of an operation, so nothing is made of what has not changed
        for tensor, address, version, dtype, shape, strides in stamps:
            if (
                tensor.is_inference()
                or tensor._version != version
                or tensor.data_ptr() != address
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.stride() != strides
            ):
                return False
        return True

    return same


class Prepared(Generic[T]):
    """A value made of tensors: ``make`` is called at once, and again by ``get`` after a tensor has changed.

    Seen are: writes that torch counts (``weight.copy_``, ``weight[...] = ``), ``weight.data = other``, which changes
    memory and perhaps the dtype of the same tensor, and ``weight.resize_``. A write through ``weight.data`` or past
    torch is not counted: after one, call ``prepare`` again. Tensors made under ``inference_mode`` count nothing, so
    of these the value is made at every ``get``. No device sync.

    Args:
        make: the value of the tensors; what it raises, ``get`` raises.
        tensors: what it is made of; ``None`` is passed on.
        watch: sees the changes; a backend may have a faster one, which sees the same.

    Examples:
        >>> import torch
        >>> weight = torch.ones(2)
        >>> doubled = Prepared(lambda tensor: tensor * 2, weight)
        >>> weight.copy_(torch.tensor([1.0, 3.0]))
        tensor([1., 3.])
        >>> doubled.get()
        tensor([2., 6.])
    """

    def __init__(
        self,
        make: "Callable[..., T]",
        *tensors: "Tensor | None",
        watch: "Callable[..., Callable[[], bool]]" = watch,
    ) -> None:
        self._make = make
        self._tensors = tensors
        self._watch = watch
        self._kept = self._made()

    def get(self) -> T:
        """The value for the tensors as they are now; what ``make`` raises leaves the earlier value unused."""
        value, same = self._kept
        if not same():
            value, _ = self._kept = self._made()
        return value

    def _made(self) -> "tuple[T, Callable[[], bool]]":
        # kept as a pair, or a value could stand beside the watch of another thread's; and watched before it is made, so
        # that ``get`` sees what another thread changes meanwhile
        same = self._watch(*self._tensors)
        return self._make(*self._tensors), same
