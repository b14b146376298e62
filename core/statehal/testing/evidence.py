"""How strong the evidence of a run is: computed from where it ran, never declared."""

import torch

from statehal.env import interpreted
from statehal.testing.target import Target

LEVELS = {
    "hardware": "on a device that the backend is for",
    "interpreter": "kernels interpreted on the host",
    "real schemas": "on the host, with the operators of the vendor's own extension of torch",
    "contract model": "on another device than those the backend is for",
}
"""The levels, strongest first, and what each means."""


def level(target: Target) -> str:
    """One of ``LEVELS``, for a backend on the device it was run on."""
    kind = torch.device(target.device).type
    own = target.info.device_types
    if kind in own and not (interpreted() and own != {"cpu"}):
        return "hardware"
    if interpreted():
        return "interpreter"
    # an extension of torch gives its device type a name when it is loaded
    return "real schemas" if torch._C._get_privateuse1_backend_name() in own else "contract model"
