"""What a plugin says about itself and about a device."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from statehal._suggest import did_you_mean
from statehal.env import Variable
from statehal.errors import ArgumentError
from statehal.hookspecs.capabilities import CAPABILITIES
from statehal.hookspecs.markers import CONTRACT

ProbeState = Literal["ready", "unavailable", "broken"]
"""What a probe finds."""


@dataclass(frozen=True)
class BackendInfo:
    """A backend's answer to ``statehal_backend_info``.

    Attributes:
        name: the name of its entry point.
        device_types: torch's device types on which it may be chosen without being named, such as ``{"cuda"}``.
        priority: of the ready backends for a device the highest wins; two with the same priority are an error.
        contract: the version of the contract that it was written for.
        capabilities: tags of ``statehal.hookspecs.capabilities``: what it claims; the conformance kit tests each claim.
        description: one line for ``statehal doctor``.
        variables: the environment variables of its own.
        unsupported: by check of the conformance kit, or a pattern of names, why it can never pass; it is not run.
        expected_failures: by check or pattern, why it fails today; one that passes is a failure.
    """

    name: str
    device_types: frozenset[str]
    priority: int = 0
    contract: tuple[int, int] = CONTRACT
    capabilities: frozenset[str] = frozenset()
    description: str = ""
    variables: tuple[Variable, ...] = ()
    unsupported: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("device_types", "capabilities"):
            value = getattr(self, name)
            if isinstance(value, str):  # frozenset("cuda") would be four letters
                raise ArgumentError(f"{name}={value!r} is one string (fix: pass a set of strings: {{{value!r}}})")
            object.__setattr__(self, name, frozenset(value))
        unknown = sorted(self.capabilities - CAPABILITIES)
        if unknown:
            hints = "; ".join(did_you_mean(tag, CAPABILITIES) or f"take {tag!r} out" for tag in unknown)
            raise ArgumentError(f"capabilities={unknown}: expected some of {sorted(CAPABILITIES)} (fix: {hints})")
        for name in ("unsupported", "expected_failures"):
            reasons = dict(getattr(self, name))
            if not all(isinstance(reason, str) and reason for reason in reasons.values()):
                raise ArgumentError(f"{name}={reasons!r}: expected a reason for each check")
            object.__setattr__(self, name, MappingProxyType(reasons))
        object.__setattr__(self, "contract", tuple(self.contract))
        object.__setattr__(self, "variables", tuple(self.variables))
        if len(self.contract) != 2 or not all(isinstance(part, int) for part in self.contract):
            raise ArgumentError(f"contract={self.contract!r}: expected (major, minor), such as {CONTRACT}")


@dataclass(frozen=True)
class Probe:
    """A backend's answer to ``statehal_probe``.

    Attributes:
        state: ``"ready"``; ``"unavailable"``: what it needs is not on this machine, which is no fault;
            ``"broken"``: what it needs is there and does not work.
        reason: why it is not ready; empty where it is.
        fix: what to do about it.
        details: versions and paths found on the way.
    """

    state: ProbeState
    reason: str = ""
    fix: str = ""
    details: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.state not in ("ready", "unavailable", "broken"):
            raise ArgumentError(f"state={self.state!r}: expected 'ready', 'unavailable' or 'broken'")
        if self.state != "ready" and not self.reason:
            raise ArgumentError(f"a probe with state={self.state!r} gives no reason (fix: pass reason=...)")
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))
