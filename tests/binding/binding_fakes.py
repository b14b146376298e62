"""Plugins that answer operation hooks with what a test gives them, and pools to bind to."""

from collections.abc import Callable, Mapping
from typing import Any

import statehal.reference
from plugin_fakes import FakeBackend, discover
from statehal import Attention, Binding, ConvRecurrent, StatePool, hookimpl
from statehal.registry import Registry

Answer = Callable[[Any], Any] | object


class Override:
    """Answers hooks with fixed objects, or with what a function makes of the request; keeps the requests."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.requests: list[Any] = []

    def _answer(self, hook: str, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.get(hook)
        return answer(request) if callable(answer) else answer

    @hookimpl
    def statehal_fused_kv_write(self, request: Any) -> Any:
        return self._answer("kv", request)

    @hookimpl
    def statehal_causal_conv1d(self, request: Any) -> Any:
        return self._answer("conv", request)

    @hookimpl
    def statehal_memory_ops(self, request: Any) -> Any:
        return self._answer("memory", request)

    @hookimpl
    def statehal_pool_layout(self, request: Any) -> Any:
        return self._answer("layout", request)

    @hookimpl
    def statehal_conv_state_layout(self, request: Any) -> Any:
        return self._answer("conv_layout", request)


class Backend(FakeBackend, Override):
    """A backend for the CPU that is preferred to the reference, with answers as of ``Override``."""

    def __init__(self, name: str, priority: int = 5, **answers: Answer) -> None:
        FakeBackend.__init__(self, name, priority=priority)
        Override.__init__(self, **answers)


def registry(plugins: Mapping[str, object] | None = None) -> Registry:
    """A registry of the reference and these plugins."""
    return discover({"reference": statehal.reference, **(plugins or {})})


def bind(plugins: Mapping[str, object] | None = None, backend: str | None = None, **options: Any) -> Binding:
    """A binding to the CPU with the reference and these plugins."""
    return statehal.bind("cpu", backend, registry=registry(plugins), **options)


ATTENTION = Attention("kv", (0,), 2, 4, "float32")
CONV = ConvRecurrent("conv", (0,), 3, 4, "float32")


def allocate(hal: Binding, *specs: Attention | ConvRecurrent) -> StatePool:
    """A small pool of these specs, or of one attention and one conv sub-pool."""
    return hal.allocate(hal.plan(specs or (ATTENTION, CONV), tokens=32, requests=3, page_size=4, waste_limit=0.9))


class Recorder:
    """Some methods of an operation contract; each call is recorded and answered with the recorder's name."""

    def __init__(self, name: str, *methods: str) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.name = name
        for method in methods:
            setattr(self, method, self._recording(method))

    def _recording(self, method: str) -> Callable[..., str]:
        def record(*args: Any, **kwargs: Any) -> str:
            self.calls.append((method, args, kwargs))
            return self.name

        return record
