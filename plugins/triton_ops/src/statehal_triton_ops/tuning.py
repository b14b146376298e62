"""Sizes of a program's tile, which a plugin chooses by device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KVTuning:
    """Of the KV writes.

    Attributes:
        tile: elements of K (and of V) that a program takes; a power of two.
        num_warps: warps a program.
    """

    tile: int = 2048
    num_warps: int = 4
