"""Callers' memory as bytes: anything with the buffer protocol, and tensors on the host, without a copy."""

import ctypes
from typing import TYPE_CHECKING, TypeAlias, cast

from statehal.errors import ArgumentError

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

BufferLike: TypeAlias = "Buffer | torch.Tensor"
"""Bytes, a bytearray, a memoryview, an array of NumPy, or a contiguous tensor on the host."""


def byte_view(buffer: BufferLike, nbytes: int | None, what: object, *, writable: bool) -> memoryview:
    """The memory of a buffer, which must stay alive as long as the view.

    Args:
        nbytes: what it has to hold; ``None`` where any length will do.
        what: the part, for the error.
        writable: whether it is read into.

    Raises:
        ArgumentError: it is no memory, not contiguous, not on the host, of another length, or read-only where it is
            read into.
    """
    view = _tensor_bytes(cast("torch.Tensor", buffer), what) if hasattr(buffer, "data_ptr") else _bytes(buffer, what)
    if nbytes is not None and view.nbytes != nbytes:
        raise ArgumentError(f"the buffer of {what} has {view.nbytes:,} bytes: expected {nbytes:,}, the part's payload")
    if writable and view.readonly:
        raise ArgumentError(f"the buffer of {what} is read-only (fix: give a bytearray, or a slice of a tensor)")
    return view


def address(view: memoryview) -> int:
    """Where writable memory begins."""
    return ctypes.addressof((ctypes.c_char * 0).from_buffer(view))


def _bytes(buffer: "Buffer", what: object) -> memoryview:
    try:
        view = memoryview(buffer)
        return view if view.format == "B" and view.ndim == 1 and view.contiguous else view.cast("B")
    except TypeError as error:
        raise ArgumentError(f"the buffer of {what} is no contiguous memory: {error}") from None


def _tensor_bytes(tensor: "torch.Tensor", what: object) -> memoryview:
    """A tensor without NumPy: its address and its bytes."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ArgumentError(
            f"the buffer of {what} is a tensor on {tensor.device} with strides {tuple(tensor.stride())}: expected a "
            f"contiguous one on the host"
        )
    nbytes = tensor.numel() * tensor.element_size()
    # the array does not own the memory, and the caller holds the tensor for the length of the call
    return (
        memoryview((ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())).cast("B") if nbytes else memoryview(b"")
    )
