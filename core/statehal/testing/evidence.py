"""How strong the evidence of a run is: computed from where it ran, never declared."""

import torch

from statehal.env import interpreted
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
    if kind in own and not (interpreted() and own != {"cpu"}):
        return "hardware"
    return "interpreter" if interpreted() else "contract model"
