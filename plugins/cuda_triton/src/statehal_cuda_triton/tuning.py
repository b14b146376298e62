"""Tile sizes by compute capability."""

from functools import cache

import torch
from triton import knobs

from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.tuning import KVTuning, Tuning

_SM89 = Tuning(KVTuning(fp8_by_ptx=True))

SINCE: dict[tuple[int, int], Tuning] = {(8, 0): Tuning(), (8, 9): _SM89, (9, 0): _SM89, (10, 0): _SM89, (12, 0): _SM89}
"""From these compute capabilities on. No size has been measured on a GPU yet, so all are the default."""

INTERPRETED = Tuning(KVTuning(tile=1 << 14))
"""Few and large programs: the interpreter takes milliseconds for each."""


@cache
def tuning(device: str) -> Tuning:
    """The entry of a device: of its capability, or of the last before it."""
    if knobs.runtime.interpret:
        return INTERPRETED
    capability = torch.cuda.get_device_capability(device)
    return SINCE[max(since for since in SINCE if since <= capability)]


def compiled() -> list[tuple[str, KVTuning | ConvTuning]]:
    """Every entry, beside the family of targets that it is for: what is compiled ahead of time."""
    families = {since: "cuda80" if since < (8, 9) else "cuda" for since in SINCE}
    return [(families[since], one) for since, entry in SINCE.items() for one in (entry.kv, entry.conv)]
