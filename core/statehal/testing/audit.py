"""What of the contract no check ever reaches: calls are recorded below the binding, where a backend gets them."""

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from statehal.hookspecs import OPERATION_HOOKS, hookimpl, methods_of
from statehal.registry import Registry
from statehal.registry.records import DistributionLike
from statehal.registry.scan import installed
from statehal.testing.check import Check
from statehal.testing.runner import judge
from statehal.testing.target import Target

LABELS = {"statehal_fused_kv_write": "kv", "statehal_causal_conv1d": "conv", "statehal_memory_ops": "memory"}
"""How the methods of each hook's answer are named: ``"kv.write"``."""

EXEMPT = {"memory.record(stream=)": "a host has no streams"}
"""What cannot be reached on a host, and why."""


def everything() -> dict[str, inspect.Signature]:
    """Every method of the contract, by name, with its signature."""
    return {
        f"{LABELS[hook]}.{method}": inspect.signature(getattr(protocol, method))
        for hook, protocol in OPERATION_HOOKS.items()
        for method in methods_of(hook)
    }


def parts(name: str, signature: inspect.Signature) -> Iterator[str]:
    """What has to be reached of a method: a call, and a call with each optional argument."""
    yield name
    for argument in signature.parameters.values():
        if argument.default is not inspect.Parameter.empty:
            yield f"{name}({argument.name}=)"


def unreached(checks: Iterable[Check], backend: str = "reference", device: str = "cpu") -> list[str]:
    """Methods and optional arguments that no check passes to this backend; on a host without those of ``EXEMPT``.

    An argument counts where its value is not the default. Every check is run with few examples; those that could
    reach what is still missing are run again with those of ``ci``.

    Returns:
        names such as ``"kv.move"`` and ``"conv.verify(parents=)"``.
    """
    checks = list(checks)
    recorder = Recorder()
    points = [point for point in installed()[0] if point.name in {backend, "reference"}]
    target = Target(backend, device, Registry.discover([*points, RecorderPoint(recorder)], {}))
    exempt = EXEMPT if torch.device(device).type == "cpu" else {}
    every = (part for name, signature in everything().items() for part in parts(name, signature))
    wanted = [part for part in every if part not in exempt]
    for check in checks:
        judge(check, target, profile_name="dev", shrink=False)
    methods = {part.split("(")[0] for part in wanted if part not in recorder.seen}
    for check in checks:
        if any(methods.intersection(need.split(" or ")) for need in check.needs):
            judge(check, target, profile_name="ci", shrink=False)
    return [part for part in wanted if part not in recorder.seen]


@dataclass(eq=False)
class Recorder:
    """A plugin that stands between the binding and every provider, and notes what is called with which arguments.

    Attributes:
        seen: names, as ``parts`` gives them.
    """

    seen: set[str] = field(default_factory=set)

    @hookimpl(wrapper=True)
    def statehal_fused_kv_write(self, request: object) -> Generator[None, list[Any], list[Any]]:
        return self._recorded("statehal_fused_kv_write", (yield))

    @hookimpl(wrapper=True)
    def statehal_causal_conv1d(self, request: object) -> Generator[None, list[Any], list[Any]]:
        return self._recorded("statehal_causal_conv1d", (yield))

    @hookimpl(wrapper=True)
    def statehal_memory_ops(self, request: object) -> Generator[None, list[Any], list[Any]]:
        return self._recorded("statehal_memory_ops", (yield))

    def _recorded(self, hook: str, answers: list[Any]) -> list[Any]:
        return [Answer(self, hook, answer) for answer in answers]

    def method(self, name: str, signature: inspect.Signature, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same method; what it is called with is noted."""

        def recorded(*args: Any, **kwargs: Any) -> Any:
            self.seen.add(name)
            try:
                given = signature.bind(None, *args, **kwargs).arguments  # None: self
            except TypeError:
                return call(*args, **kwargs)  # a wrong call, which is the method's to refuse
            for argument, value in given.items():
                default = signature.parameters[argument].default
                if default is not inspect.Parameter.empty and not _same(value, default):
                    self.seen.add(f"{name}({argument}=)")
            return call(*args, **kwargs)

        return recorded


class Answer:
    """A provider's answer, whose methods are recorded; everything else is the answer's own."""

    def __init__(self, recorder: Recorder, hook: str, answer: object) -> None:
        self._answer = answer
        signatures = everything()
        for method in methods_of(hook):
            offered, name = getattr(answer, method, None), f"{LABELS[hook]}.{method}"
            if callable(offered):
                setattr(self, method, recorder.method(name, signatures[name], offered))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)


@dataclass(frozen=True)
class RecorderPoint:
    """The entry point of a recorder."""

    recorder: Recorder
    name: str = "audit"
    value: str = "statehal.testing.audit"
    dist: DistributionLike | None = None

    def load(self) -> Any:
        """The plugin."""
        return self.recorder


def _same(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
