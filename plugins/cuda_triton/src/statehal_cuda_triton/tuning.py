"""Tile sizes by compute capability."""

from dataclasses import dataclass, field
from functools import cache

import torch
from triton import knobs

from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.tuning import KVTuning


@dataclass(frozen=True)
class Tuning:
    """Of all operations on one device."""

    kv: KVTuning = field(default_factory=KVTuning)
    conv: ConvTuning = field(default_factory=ConvTuning)


BY_CAPABILITY: dict[int, Tuning] = {8: Tuning(), 9: Tuning(), 10: Tuning(), 12: Tuning()}
"""By major compute capability. None has been measured on a GPU yet, so all are the default."""

INTERPRETED = Tuning(KVTuning(tile=1 << 14))
"""Few and large programs: the interpreter takes milliseconds for each."""


@cache
def tuning(device: str) -> Tuning:
    """The entry of a device; an unknown capability takes the default."""
    if knobs.runtime.interpret:
        return INTERPRETED
    return BY_CAPABILITY.get(torch.cuda.get_device_capability(device)[0], Tuning())


def compiled() -> list[tuple[str, KVTuning | ConvTuning]]:
    """Every entry, beside the name of Triton's backend: what is compiled ahead of time."""
    return [("cuda", one) for entry in BY_CAPABILITY.values() for one in (entry.kv, entry.conv)]
