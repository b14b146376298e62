"""What an answer to an operation hook offers, and what in it is almost the name of a method."""

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from statehal._suggest import did_you_mean
from statehal.errors import PluginBroken
from statehal.hookspecs import OPERATION_HOOKS, methods_of

NEAR = 0.75
"""How near a name must be to a method's to count as a misspelling of it: ``moov`` is as near to ``move``.

The first letter must be the same, too: ``remove`` is another word.
"""


def given(hook: str, answer: object) -> Mapping[str, Any]:
    """What the answer has under the names of the hook's methods, in their order.

    One that is inherited from the contract's protocol has no body, and is left out; so is ``None``.
    """
    stubs = vars(OPERATION_HOOKS[hook])
    found = {method: getattr(answer, method, None) for method in methods_of(hook)}
    return {
        method: value
        for method, value in found.items()
        if value is not None and getattr(value, "__func__", value) is not stubs[method]
    }


def offered(hook: str, name: str, answer: object) -> Mapping[str, Callable[..., Any]]:
    """The methods of an answer; a public method that is nearly one that it lacks is told once in the log.

    Args:
        hook: an operation hook.
        name: of the plugin.
        answer: what it answered.

    Raises:
        PluginBroken: it has none of them, or one that cannot be called.
    """
    methods = given(hook, answer)
    for method, value in methods.items():
        if not callable(value):
            raise PluginBroken(f"plugin {name!r} answered {hook} with {method}={value!r}, which cannot be called")
    objections = misspelt(hook, answer)
    if not methods:
        why = f"; {objections[0]}" if objections else " (fix: offer one of these, or answer None)"
        raise PluginBroken(
            f"plugin {name!r} answered {hook} with a {type(answer).__name__}, which has none of its methods "
            f"{', '.join(methods_of(hook))}{why}"
        )
    for objection in objections:
        _tell(f"plugin {name!r} answered {hook}: {objection}")
    return methods


def misspelt(hook: str, answer: object) -> list[str]:
    """Objections to public methods whose names are nearly those of methods that the answer lacks.

    A name that goes on after a method's and an underscore, as ``write_rows``, is a helper's.
    """
    lacking = set(methods_of(hook)) - set(given(hook, answer))
    if not lacking:
        return []
    protocol = OPERATION_HOOKS[hook].__name__
    found = []
    for name in dir(answer):
        right = name.startswith("_") or name in methods_of(hook)
        if right or not callable(inspect.getattr_static(answer, name, None)):
            continue
        meant = (one for one in lacking if one[0] == name[0] and not name.startswith(f"{one}_"))
        hint = did_you_mean(name, meant, cutoff=NEAR)
        if hint:
            found.append(f"{type(answer).__name__} has {name!r}, which is no method of {protocol} (fix: {hint})")
    return found


@lru_cache
def _tell(text: str) -> None:
    logging.getLogger("statehal").warning("%s", text)
