"""What a tracer hears of a plugin manager: pluggy's hook-call monitoring, and a stack a thread."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pluggy


class HookListener(Protocol):
    """Hears of each hook call of one plugin manager."""

    def hook_started(self, hook: str, implementations: tuple[str, ...], arguments: Mapping[str, object]) -> object:
        """Called before the call, with the implementing plugins in call order; returns what ``hook_ended`` is given."""
        ...

    def hook_ended(self, started: Any, result: object, error: BaseException | None) -> None:
        """Called after the call, with its result or what it raised."""
        ...


class _Stack(threading.local):
    def __init__(self) -> None:
        self.started: list[object] = []


def listen(manager: pluggy.PluginManager, listener: HookListener) -> None:
    """Report every hook call of ``manager`` to ``listener`` from now on."""
    stack = _Stack()

    def before(hook: str, implementations: Sequence[pluggy.HookImpl], arguments: Mapping[str, object]) -> None:
        names = tuple(implementation.plugin_name for implementation in reversed(implementations))
        stack.started.append(listener.hook_started(hook, names, arguments))

    def after(
        outcome: pluggy.Result[Any],
        hook: str,
        implementations: Sequence[pluggy.HookImpl],
        arguments: Mapping[str, object],
    ) -> None:
        error = outcome.exception
        listener.hook_ended(stack.started.pop(), None if error else outcome.get_result(), error)

    manager.add_hookcall_monitoring(before, after)
