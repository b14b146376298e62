"""The stream that work is issued to, without importing torch or starting a device."""

import sys
from typing import Any


def stream_id() -> int:
    """Id of the present stream of the accelerator in use; 0 for the default stream and where there is none."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return 0
    try:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None:
            return 0
        device = torch.get_device_module(accelerator)
        # a trace must not be what initialises a device
        return int(device.current_stream().stream_id) if device.is_initialized() else 0
    except Exception:
        # a half-imported torch, a device without streams or a lost one must not make the traced program fail
        return 0
