"""Ids have types: what a host holds, what the page table gives, what kernels index with."""

from statehal.ids.spaces import IdSpace, Liveness, SpaceKey
from statehal.ids.typed import KernelIds, PhysicalIds, TypedIds, VirtualIds

__all__ = ["IdSpace", "KernelIds", "Liveness", "PhysicalIds", "SpaceKey", "TypedIds", "VirtualIds"]
