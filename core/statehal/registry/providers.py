"""Calling one plugin's implementation of a hook, with the wrappers of overriding plugins around it."""

from collections.abc import Callable, Collection
from typing import Any

import pluggy

from statehal.errors import PluginBroken


def implements(manager: pluggy.PluginManager, hook: str, name: str) -> bool:
    """Whether the plugin answers the hook itself, not only wraps the answers of others."""
    return any(
        implementation.plugin_name == name and not _is_wrapper(implementation)
        for implementation in getattr(manager.hook, hook).get_hookimpls()
    )


def _is_wrapper(implementation: pluggy.HookImpl) -> bool:
    return bool(implementation.wrapper or implementation.hookwrapper)


def single_caller(manager: pluggy.PluginManager, hook: str, name: str, backends: Collection[str]) -> Callable[..., Any]:
    """A call of ``hook`` that the plugin ``name`` alone answers.

    Overriding plugins that only wrap the hook stay in, so they wrap every provider; the other ``backends`` are left out
    with their wrappers. The call takes the hook's arguments by keyword and returns the answer, or ``None``.
    """
    left_out = [
        plugin
        for other, plugin in manager.list_name_plugin()
        if plugin is not None and other != name and (other in backends or implements(manager, hook, other))
    ]
    caller = manager.subset_hook_caller(hook, left_out)
    if caller.spec is not None and caller.spec.opts.get("firstresult"):
        return caller

    def call(**arguments: object) -> Any:
        answers = caller(**arguments)
        if not isinstance(answers, list):  # pluggy itself always makes a list
            raise PluginBroken(
                f"a wrapper of {hook} returned {type(answers).__name__} for plugin {name!r} (fix: return the list that "
                "its yield gave, with the answers replaced)"
            )
        return answers[0] if answers else None

    return call
