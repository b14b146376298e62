"""Host memory that a device copies from, and events: the same for every backend of a device that torch knows."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Transfers:
    """``alloc_pinned``, ``record`` and ``wait`` of ``MemoryOps``, for a backend to derive its own from.

    Args:
        device: a torch device.
    """

    def __init__(self, device: str = "cpu") -> None:
        import torch

        self._device = torch.device(device)
        kind = self._device.type
        self._module = None if kind == "cpu" else torch.get_device_module(kind)

    def alloc_pinned(self, nbytes: int) -> "Tensor":
        """As of ``MemoryOps``."""
        import torch

        return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=self._module is not None)

    def record(self, stream: Any = None) -> Any:
        """As of ``MemoryOps``; ``None`` on the host, which has done the work when a call returns."""
        if self._module is None:
            return None
        event = self._module.Event()
        # without a stream it would be the present one of the present device
        event.record(self._module.current_stream(self._device) if stream is None else stream)
        return event

    def wait(self, event: Any) -> None:
        """As of ``MemoryOps``."""
        if event is not None:
            event.synchronize()
