"""Whether hooks and methods of a backend take what the contract passes."""

import inspect
from collections.abc import Iterator
from typing import Any

from statehal.binding.answers import given, misspelt
from statehal.hookspecs import (
    OPERATION_HOOKS,
    CausalConv1dRequest,
    HookSpecs,
    KVWriteRequest,
    MemoryOpsRequest,
)
from statehal.testing.check import check
from statehal.testing.plugin import alone, loaded
from statehal.testing.target import Target


@check("discovery")
def check_hooks_have_the_signatures_of_the_contract(target: Target) -> None:
    """A hook takes the contract's arguments, without defaults: pluggy never passes an argument that has one."""
    manager, plugin = alone(target), loaded(target).plugin
    for caller in manager.get_hookcallers(plugin) or []:
        specified = list(inspect.signature(getattr(HookSpecs, caller.name)).parameters)[1:]
        for one in caller.get_hookimpls():
            takes = f"{caller.name} takes {list(one.argnames)} and, with defaults, {list(one.kwargnames)}"
            assert [*one.argnames] == specified, f"{takes}; the contract gives {specified}"


@check("discovery")
def check_methods_have_the_signatures_of_the_contract(target: Target) -> None:
    """A method takes the contract's arguments: names, order, which of them by keyword alone, and defaults."""
    methods = [(hook, *one) for hook, answer in _answers(target) for one in given(hook, answer).items()]
    for hook, name, method in methods:
        wanted = list(inspect.signature(getattr(OPERATION_HOOKS[hook], name)).parameters.values())[1:]
        found = list(inspect.signature(method).parameters.values())
        assert _plain(found) == _plain(wanted), f"{name} takes {_text(found)}, the contract says {_text(wanted)}"


@check("discovery")
def check_no_method_is_misspelt(target: Target) -> None:
    """No public method of an answer has almost the name of one that the answer lacks: the reference would do that."""
    found = [f"its answer to {hook}: {one}" for hook, answer in _answers(target) for one in misspelt(hook, answer)]
    assert not found, "\n".join(dict.fromkeys(found))


def _answers(target: Target) -> Iterator[tuple[str, Any]]:
    """Hook and answer of everything that the backend itself hands out."""
    hal = target.binding()
    pool = hal.allocate(hal.plan(target.samples(), tokens=16, page_size=16, waste_limit=0.9))
    requests: list[tuple[str, Any]] = [
        ("statehal_fused_kv_write", KVWriteRequest(pool["kv"], target.device)),
        ("statehal_fused_kv_write", KVWriteRequest(pool["mla"], target.device)),
        ("statehal_causal_conv1d", CausalConv1dRequest(pool["conv"], target.device)),
        ("statehal_memory_ops", MemoryOpsRequest(target.device)),
    ]
    for hook, request in requests:
        for provider in target.registry.providers(hook, target.backend):
            answer = provider.call(request) if provider.name == target.backend else None
            if answer is not None:
                yield hook, answer


def _plain(parameters: list[inspect.Parameter]) -> list[tuple[str, str, object]]:
    return [(one.name, one.kind.description, one.default) for one in parameters]


def _text(parameters: list[inspect.Parameter]) -> str:
    return str(inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters]))
