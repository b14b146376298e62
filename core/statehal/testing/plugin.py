"""A backend's plugin alone, as pluggy sees it: nobody answers for it."""

from typing import Any

import pluggy

from statehal.hookspecs import PROJECT, HookSpecs
from statehal.registry import Backend
from statehal.testing.target import Target


def loaded(target: Target) -> Backend:
    """The backend in the registry; that it is not there is a failure, with the reason."""
    registry = target.registry
    failure = registry.failures.get(target.backend) or registry.conflicts.get(target.backend)
    known = ", ".join(registry.backends)
    assert target.backend in registry.backends, str(failure or f"no backend {target.backend!r}, there are {known}")
    return registry.backends[target.backend]


def alone(target: Target) -> pluggy.PluginManager:
    """The plugin alone, so that nobody answers for it."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    manager.register(loaded(target).plugin)
    return manager


def answered(target: Target, hook: str, **arguments: object) -> Any:
    """The plugin's answer; what it raises is a failure of the check."""
    problem = ""
    answers: Any = None
    try:
        answers = getattr(alone(target).hook, hook)(**arguments)
    except (Exception, SystemExit) as error:
        problem = f"{hook} of {arguments or 'nothing'} raised {type(error).__name__}: {error}"
    assert not problem, problem
    return answers[0] if answers else None
