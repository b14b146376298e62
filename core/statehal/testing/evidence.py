"""How strong the evidence of a run is: computed from where it ran, never declared."""

import os

import torch

from statehal.testing.target import Target

LEVELS = {
    "hardware": "on a device that the backend is for",
    "interpreter": "kernels interpreted on the host",
    "contract model": "on another device than those the backend is for",
}
"""The levels, strongest first, and what each means."""


def level(target: Target) -> str:
    """One of ``LEVELS``, for a backend on the device it was run on."""
    kind = torch.device(target.device).type
    own = target.info.device_types
    if kind in own and not (_interpreted() and own != {"cpu"}):
        return "hardware"
    return "interpreter" if _interpreted() else "contract model"


def _interpreted() -> bool:
    """Whether Triton interprets kernels instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")
