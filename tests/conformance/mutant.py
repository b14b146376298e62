"""Backends that are the reference with one fault, each named beside the check that must notice it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import statehal.reference as reference
from plugin_fakes import discover
from statehal.hookspecs import CAPABILITIES, IDS64, BackendInfo, Probe, hookimpl
from statehal.testing import Target

Change = Callable[[Any, Any], Any]
"""Of the object that the reference answers, and the request: the object with the fault."""


@dataclass(eq=False)
class MutantBackend:
    """The reference, whose answers to some hooks are changed."""

    kv: Change = lambda made, request: made
    conv: Change = lambda made, request: made
    memory: Change = lambda made, request: made
    pool_layout: Change = lambda made, request: made
    conv_layout: Change = lambda made, request: made
    info: dict[str, Any] = field(default_factory=dict)

    @hookimpl
    def statehal_backend_info(self) -> BackendInfo:
        given: dict[str, Any] = {"priority": 9, "capabilities": CAPABILITIES - {IDS64}}
        return BackendInfo("mutant", frozenset({"cpu"}), **(given | self.info))

    @hookimpl
    def statehal_probe(self, device: str) -> Probe:
        return Probe("ready")

    @hookimpl
    def statehal_pool_layout(self, request: Any) -> Any:
        return self.pool_layout(reference.statehal_pool_layout(request), request)

    @hookimpl
    def statehal_conv_state_layout(self, request: Any) -> Any:
        return self.conv_layout(reference.statehal_conv_state_layout(request), request)

    @hookimpl
    def statehal_fused_kv_write(self, request: Any) -> Any:
        return self.kv(reference.statehal_fused_kv_write(request), request)

    @hookimpl
    def statehal_causal_conv1d(self, request: Any) -> Any:
        return self.conv(reference.statehal_causal_conv1d(request), request)

    @hookimpl
    def statehal_memory_ops(self, request: Any) -> Any:
        return self.memory(reference.statehal_memory_ops(request), request)


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        name: what is wrong, in words.
        check: the check that must fail, by its assertion.
        make: makes the backend.
    """

    name: str
    check: str
    make: Callable[[], MutantBackend]


def target(backend: MutantBackend) -> Target:
    """The mutant beside the reference, in a registry of their own."""
    return Target("mutant", "cpu", discover({"reference": reference, "mutant": backend}))
