"""Who answers a hook, in which order, and that wrappers wrap every answer."""

import inspect
import itertools
from collections.abc import Generator
from typing import Any

import pytest

from plugin_fakes import FakeBackend, discover
from statehal.errors import ArgumentError, PluginBroken, UnknownBackend
from statehal.hookspecs import HOOKS, HookSpecs, hookimpl

HOOK = "statehal_causal_conv1d"


class Backend(FakeBackend):
    """Answers with its own name and the request."""

    @hookimpl
    def statehal_causal_conv1d(self, request: object) -> object:
        return [f"{self.info.name}:{request}"]


class Override:
    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def statehal_causal_conv1d(self, request: object) -> object:
        return [f"{self.name}:{request}"]


class Wrapper:
    """Wraps each answer in its own name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    @hookimpl(wrapper=True)
    def statehal_causal_conv1d(self, request: object) -> Generator[None, Any, Any]:
        self.calls += 1
        answers: list[list[str]] = yield
        return [[f"{self.name}({text})" for text in answer] for answer in answers]


class WrappingBackend(FakeBackend):
    @hookimpl(wrapper=True)
    def statehal_causal_conv1d(self, request: object) -> Generator[None, Any, Any]:
        yield
        return ["stolen"]


def answers(plugins: dict[str, object], backend: str, hook: str = HOOK) -> list[tuple[str, Any]]:
    return [(name, call("r")) for name, call in discover(plugins).providers(hook, backend)]


def test_overriding_plugins_by_name_then_the_backend_then_the_reference() -> None:
    plugins = {
        "site": Override("site"),
        "reference": Backend("reference"),
        "chosen": Backend("chosen"),
        "other": Backend("other"),
        "also": Override("also"),
    }
    expected = ["also", "site", "chosen", "reference"]
    for order in itertools.permutations(plugins):
        found = answers({name: plugins[name] for name in order}, "chosen")
        assert found == [(name, [f"{name}:r"]) for name in expected]


def test_the_reference_appears_once_when_it_is_chosen() -> None:
    plugins: dict[str, object] = {"reference": Backend("reference"), "b": Backend("b")}
    assert answers(plugins, "reference") == [("reference", ["reference:r"])]


def test_only_those_that_implement_the_hook_are_listed() -> None:
    plugins: dict[str, object] = {"b": FakeBackend("b"), "reference": Backend("reference"), "w": Wrapper("w")}
    assert [name for name, _ in answers(plugins, "b")] == ["reference"]
    assert answers(plugins, "b", "statehal_memory_ops") == []


def test_a_wrapper_wraps_every_provider_once_a_call() -> None:
    wrapper = Wrapper("w")
    plugins = {
        "w": wrapper,
        "site": Override("site"),
        "b": Backend("b"),
        "reference": Backend("reference"),
    }
    assert answers(plugins, "b") == [
        ("site", ["w(site:r)"]),
        ("b", ["w(b:r)"]),
        ("reference", ["w(reference:r)"]),
    ]
    assert wrapper.calls == 3


def test_the_other_backends_are_left_out_with_their_wrappers() -> None:
    plugins: dict[str, object] = {"b": Backend("b"), "thief": WrappingBackend("thief")}
    assert answers(plugins, "b") == [("b", ["b:r"])]
    assert answers(plugins, "thief") == []


def test_a_plugin_that_declines_answers_none() -> None:
    class Declines:
        @hookimpl
        def statehal_causal_conv1d(self, request: object) -> None:
            return None

    plugins: dict[str, object] = {"a": Declines(), "b": Backend("b"), "w": Wrapper("w")}
    assert answers(plugins, "b") == [("a", None), ("b", ["w(b:r)"])]


def test_an_answer_is_handed_through_as_it_is() -> None:
    made = object()

    class Exact(FakeBackend):
        @hookimpl
        def statehal_memory_ops(self, request: object) -> object:
            return made

    ((name, call),) = discover({"e": Exact("e")}).providers("statehal_memory_ops", "e")
    assert name == "e"
    assert call(None) is made


def test_what_a_provider_raises_reaches_the_caller() -> None:
    class Fails(FakeBackend):
        @hookimpl
        def statehal_causal_conv1d(self, request: object) -> object:
            raise LookupError("no kernel")

    ((_, call),) = discover({"f": Fails("f")}).providers(HOOK, "f")
    with pytest.raises(LookupError, match="no kernel"):
        call(None)


def test_a_wrapper_that_forgets_the_list_is_named() -> None:
    class Forgets:
        @hookimpl(wrapper=True)
        def statehal_causal_conv1d(self, request: object) -> Generator[None, Any, Any]:
            yield

    ((_, call),) = discover({"b": Backend("b"), "w": Forgets()}).providers(HOOK, "b")
    with pytest.raises(PluginBroken, match=f"a wrapper of {HOOK} returned NoneType for plugin 'b'"):
        call(None)


REQUEST_HOOKS = [hook for hook in HOOKS if "request" in inspect.signature(getattr(HookSpecs, hook)).parameters]


def test_there_are_such_hooks() -> None:
    assert len(REQUEST_HOOKS) == 5


@pytest.mark.parametrize("hook", REQUEST_HOOKS)
def test_every_hook_that_takes_a_request_is_provided_by_the_same_rule(hook: str) -> None:
    def make(name: str) -> FakeBackend:
        @hookimpl
        def function(self: object, request: object) -> object:
            return f"{name}:{request}"

        kind = type("Made", (FakeBackend,), {hook: function})
        made: FakeBackend = kind(name)
        return made

    registry = discover({"b": make("b"), "reference": make("reference")})
    providers = registry.providers(hook, "b")
    assert [provider.name for provider in providers] == ["b", "reference"]
    assert [provider.call("r") for provider in providers] == ["b:r", "reference:r"]


def test_unknown_names_are_refused() -> None:
    registry = discover({"b": Backend("b")})
    with pytest.raises(ArgumentError, match=r"there is no hook 'statehal_conv' \(fix: "):
        registry.providers("statehal_conv", "b")
    with pytest.raises(UnknownBackend, match="no backend 'c' is installed"):
        registry.providers(HOOK, "c")
