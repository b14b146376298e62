"""Tile sizes by target."""

from functools import cache

from statehal_hip.targets import TARGETS, target_of
from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.tuning import KVTuning, Tuning

WAVE64 = Tuning(KVTuning(num_warps=2), ConvTuning(lanes=64, warps=1))
"""As many threads a program as with waves of 32, in half as many waves."""

WAVE32 = Tuning(KVTuning(num_warps=4), ConvTuning(lanes=32, warps=2))

BY_TARGET = {name: WAVE64 if target.wave == 64 else WAVE32 for name, target in TARGETS.items()}
"""None has been measured on a GPU yet, so all of a wave have one entry."""


@cache
def tuning(device: str) -> Tuning:
    """The entry of a device's target; interpreted, of the target that is asked for."""
    return BY_TARGET[target_of(device).name]


def compiled() -> list[tuple[str, KVTuning | ConvTuning]]:
    """Every entry, beside the family of targets: what is compiled ahead of time."""
    return [(f"hip{TARGETS[name].wave}", one) for name, entry in BY_TARGET.items() for one in (entry.kv, entry.conv)]
