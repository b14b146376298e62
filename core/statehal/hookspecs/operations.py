"""Which hook answers with which methods."""

import inspect
from types import MappingProxyType

from statehal.hookspecs.causal_conv1d import CausalConv1d
from statehal.hookspecs.kv_writer import KVWriter
from statehal.hookspecs.memory_ops import MemoryOps
from statehal.hookspecs.specs import HookSpecs

HOOKS: tuple[str, ...] = tuple(name for name in vars(HookSpecs) if name.startswith("statehal_"))
"""Names of all hooks, in the order of the contract."""

OPERATION_HOOKS = MappingProxyType(
    {
        "statehal_fused_kv_write": KVWriter,
        "statehal_causal_conv1d": CausalConv1d,
        "statehal_memory_ops": MemoryOps,
    }
)
"""The hooks whose answers are merged method by method, and the protocol of what they return."""


def methods_of(hook: str) -> tuple[str, ...]:
    """Names of the methods that an answer to this operation hook may have, in the order of the protocol.

    Examples:
        >>> methods_of("statehal_fused_kv_write")
        ('write', 'rope_write', 'write_latent', 'move')
    """
    protocol = OPERATION_HOOKS[hook]
    return tuple(name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_")
