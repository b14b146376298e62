"""Ids have types: what a host holds, what the page table gives, what kernels index with."""

from statehal.ids.epochs import Epoch
from statehal.ids.spaces import IdSpace, Kind, Liveness, SpaceKey, Unit
from statehal.ids.typed import KernelIds, PhysicalIds, TypedIds, VirtualIds

__all__ = [
    "Epoch",
    "IdSpace",
    "KernelIds",
    "Kind",
    "Liveness",
    "PhysicalIds",
    "SpaceKey",
    "TypedIds",
    "Unit",
    "VirtualIds",
]
