"""What a backend makes of a layer's weights, made again when the weights change."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class Prepared(Generic[T]):
    """A value made of tensors: ``make`` is called at once, and again by ``get`` after a tensor has changed.

    Seen are: writes that torch counts (``weight.copy_``, ``weight[...] = ``), ``weight.data = other``, which changes
    memory and perhaps the dtype of the same tensor, and ``weight.resize_``. A write through ``weight.data`` or past
    torch is not counted: after one, call ``prepare`` again. Tensors made under ``inference_mode`` count nothing, so
    of these the value is made at every ``get``. No device sync.

    Examples:
        >>> import torch
        >>> weight = torch.ones(2)
        >>> doubled = Prepared(lambda tensor: tensor * 2, weight)
        >>> weight.copy_(torch.tensor([1.0, 3.0]))
        tensor([1., 3.])
        >>> doubled.get()
        tensor([2., 6.])
    """

    def __init__(self, make: "Callable[..., T]", *tensors: "Tensor | None") -> None:
        self._make = make
        self._tensors = tensors
        self._stamps = self._look()  # before ``make``, so that ``get`` sees what another thread changes meanwhile
        self._value = make(*tensors)

    def get(self) -> T:
        """The value for the tensors as they are now; what ``make`` raises leaves the earlier value unused."""
        # asked at every call of an operation, so nothing is made of what has not changed
        for tensor, address, version, dtype, shape, strides in self._stamps:
            if (
                tensor.is_inference()
                or tensor._version != version
                or tensor.data_ptr() != address
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.stride() != strides
            ):
                stamps = self._look()
                self._value = self._make(*self._tensors)
                self._stamps = stamps
                break
        return self._value

    def _look(self) -> "list[tuple[Tensor, int, int, object, tuple[int, ...], tuple[int, ...]]]":
        return [
            (t, t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.shape, t.stride())
            for t in self._tensors
            if t is not None
        ]
