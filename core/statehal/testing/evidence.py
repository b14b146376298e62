"""How strong the evidence of a run is: computed from where it ran, never declared."""

import os

import torch

from statehal.testing.target import Target


def level(target: Target) -> str:
    """``"hardware"``: kernels ran on the device that the backend is for; else what stood in for it."""
    if os.environ.get("TRITON_INTERPRET") == "1" and "cpu" not in target.info.device_types:
        return "interpreter"
    kind = torch.device(target.device).type
    return "hardware" if kind in target.info.device_types else "contract model"
