"""What makes a loaded plugin acceptable."""

import inspect
from collections import Counter
from importlib.metadata import EntryPoint
from typing import NamedTuple

import pluggy

from statehal._suggest import did_you_mean
from statehal.errors import BackendError, ContractMismatch, PluginBroken
from statehal.hookspecs import CONTRACT, HOOKS, PROJECT, BackendInfo
from statehal.registry.providers import implements


class Objection(NamedTuple):
    """Why a plugin is refused."""

    error: type[BackendError]
    reason: str
    fix: str


def object_to_value(value: str) -> Objection | None:
    """What is wrong with the value of an entry point, before anything is imported; ``None`` where nothing is."""
    if EntryPoint.pattern.match(value):
        return None
    return Objection(
        PluginBroken,
        f"the value of its entry point, {value!r}, is not the name of a module",
        "write 'module' or 'module:attribute' into its pyproject.toml, and install it again",
    )


def object_to_hooks(manager: pluggy.PluginManager, name: str) -> Objection | None:
    """What is wrong with the hooks of a registered plugin, ``None`` where nothing is."""
    plugin = manager.get_plugin(name)
    forgotten = [hook for hook in HOOKS if _unmarked(manager, plugin, hook)]
    if forgotten:
        return Objection(
            PluginBroken, f"{forgotten[0]} is not marked as a hook", "decorate it with statehal.hookspecs.hookimpl"
        )
    callers = manager.get_hookcallers(plugin) or []
    if not callers:
        return Objection(PluginBroken, "it implements no hook", "implement some of statehal.hookspecs, or uninstall it")
    for caller in callers:
        own = [implementation for implementation in caller.get_hookimpls() if implementation.plugin_name == name]
        kinds = Counter(bool(implementation.wrapper or implementation.hookwrapper) for implementation in own)
        if kinds[False] > 1:
            return Objection(PluginBroken, f"it implements {caller.name} twice", "keep one of the implementations")
    if implements(manager, "statehal_backend_info", name) and not implements(manager, "statehal_probe", name):
        return Objection(PluginBroken, "it is a backend without statehal_probe", "implement statehal_probe")
    return None


def _unmarked(manager: pluggy.PluginManager, plugin: object, hook: str) -> bool:
    """Whether the plugin has a function of a hook's name that pluggy passes over."""
    function = inspect.getattr_static(plugin, hook, None)
    function = getattr(function, "__func__", function)
    is_spec = hasattr(function, f"{PROJECT}_spec")
    return inspect.isfunction(function) and not is_spec and manager.parse_hookimpl_opts(plugin, hook) is None


def object_to_spelling(manager: pluggy.PluginManager, name: str) -> Objection:
    """The objection to a plugin of which ``check_pending`` found that it implements an unknown hook."""
    unknown = sorted(
        caller.name for caller in manager.get_hookcallers(manager.get_plugin(name)) or [] if not caller.has_spec()
    )
    hint = did_you_mean(unknown[0], HOOKS) or f"the hooks are {', '.join(HOOKS)}"
    return Objection(PluginBroken, f"it implements the unknown hook {unknown[0]!r}", hint)


def object_to_info(info: object, name: str) -> Objection | None:
    """What is wrong with an answer to ``statehal_backend_info``, ``None`` where nothing is."""
    if not isinstance(info, BackendInfo):
        return Objection(
            PluginBroken,
            f"statehal_backend_info returned {type(info).__name__}",
            "return a statehal.hookspecs.BackendInfo",
        )
    # The contract first: what else a plugin for another one says may mean something else.
    (major, minor), (our_major, our_minor) = info.contract, CONTRACT
    if major != our_major or minor > our_minor:
        newer = (major, minor) > CONTRACT
        return Objection(
            ContractMismatch,
            f"it is written for contract {major}.{minor}, this statehal fulfils {our_major}.{our_minor}",
            "upgrade statehal, or install an older version of the plugin" if newer else "upgrade the plugin",
        )
    if info.name != name:
        return Objection(
            PluginBroken,
            f"it calls itself {info.name!r} and its entry point {name!r}",
            "give BackendInfo.name and the entry point one name",
        )
    return None
