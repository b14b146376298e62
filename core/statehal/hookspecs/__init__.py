"""The contract between statehal and a plugin: hooks, what they are asked with, what they answer. No torch."""

from statehal.hookspecs.capabilities import CAPABILITIES, IDS64
from statehal.hookspecs.causal_conv1d import CausalConv1d
from statehal.hookspecs.kv_writer import KVWriter
from statehal.hookspecs.markers import CONTRACT, ENTRY_POINT_GROUP, PROJECT, hookimpl, hookspec
from statehal.hookspecs.memory_ops import MemoryOps
from statehal.hookspecs.operations import HOOKS, OPERATION_HOOKS, methods_of
from statehal.hookspecs.prepared import Prepared
from statehal.hookspecs.requests import (
    CausalConv1dRequest,
    ConvStateLayoutRequest,
    KVWriteRequest,
    MemoryOpsRequest,
    PoolLayoutRequest,
)
from statehal.hookspecs.specs import HookSpecs
from statehal.hookspecs.transfers import Transfers
from statehal.hookspecs.types import BackendInfo, Probe, ProbeState

__all__ = [
    "CAPABILITIES",
    "CONTRACT",
    "ENTRY_POINT_GROUP",
    "HOOKS",
    "IDS64",
    "OPERATION_HOOKS",
    "PROJECT",
    "BackendInfo",
    "CausalConv1d",
    "CausalConv1dRequest",
    "ConvStateLayoutRequest",
    "HookSpecs",
    "KVWriteRequest",
    "KVWriter",
    "MemoryOps",
    "MemoryOpsRequest",
    "PoolLayoutRequest",
    "Prepared",
    "Probe",
    "ProbeState",
    "Transfers",
    "hookimpl",
    "hookspec",
    "methods_of",
]
