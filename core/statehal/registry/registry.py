"""The registry: what is installed, what is ready, who provides what."""

import traceback
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pluggy

from statehal import env, trace
from statehal._suggest import did_you_mean
from statehal.errors import ArgumentError
from statehal.hookspecs import HOOKS, Probe
from statehal.registry.discovery import Discovery, new_manager
from statehal.registry.providers import implements, single_caller
from statehal.registry.records import Backend, Candidate, Conflict, EntryPointLike, Failure, Plugin, Provider, Selection
from statehal.registry.scan import installed
from statehal.registry.selection import device_type, require, select

REFERENCE = "reference"
"""The backend that provides what neither an overriding plugin nor the chosen backend does."""


class Registry:
    """The plugins of one scan; immutable, and safe to share between threads.

    Attributes:
        backends: loaded backends by name.
        overrides: other loaded plugins by name; they always take part.
        failures: refused plugins by name.
        conflicts: names that several distributions claim.
        disabled: names in ``STATEHAL_DISABLE``, and whether a plugin of that name is installed.
    """

    def __init__(self, manager: pluggy.PluginManager, found: Discovery) -> None:
        self._manager = manager
        self.backends: Mapping[str, Backend] = MappingProxyType(dict(sorted(found.backends.items())))
        self.overrides: Mapping[str, Plugin] = MappingProxyType(dict(sorted(found.overrides.items())))
        self.failures: Mapping[str, Failure] = MappingProxyType(dict(sorted(found.failures.items())))
        self.conflicts: Mapping[str, Conflict] = MappingProxyType(dict(sorted(found.conflicts.items())))
        self.disabled: Mapping[str, bool] = MappingProxyType(dict(sorted(found.disabled.items())))

    @classmethod
    def discover(
        cls, entry_points: Iterable[EntryPointLike] | None = None, environ: Mapping[str, str] | None = None
    ) -> "Registry":
        """Scan the installed entry points, or the given ones, and load every plugin that is not disabled.

        What a plugin does wrong is recorded in ``failures`` and logged; with ``STATEHAL_STRICT=1`` it is raised.
        """
        manager = new_manager()
        tracer = trace.current(environ)
        if tracer is not None:
            tracer.attach(manager)
        found = Discovery(manager, env.strict(environ))
        unreadable: list[Failure] = []
        if entry_points is None:
            entry_points, unreadable = installed()
        for failure in unreadable:
            found.record(failure)
        found.run(entry_points, env.disabled(environ))
        return cls(manager, found)

    def probe(self, name: str, device: str) -> Probe:
        """Ask a backend about a device; what it raises makes it ``broken``, with the traceback in the details.

        Raises:
            UnknownBackend: and the other errors of ``select`` for a name that is not a loaded backend.
        """
        require(self, name)
        source = self.backends[name].source
        fix = f"repair or uninstall {source.distribution}, or set STATEHAL_DISABLE={name}"
        try:
            answer = self._caller("statehal_probe", name)(device=device)
        except (Exception, SystemExit) as error:
            text = "".join(traceback.format_exception(error))
            reason = f"its probe raised {type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
            return Probe("broken", reason, fix, {"traceback": text})
        if isinstance(answer, Probe):
            return answer
        return Probe("broken", f"its probe returned {type(answer).__name__} instead of a Probe", fix)

    def candidates(self, device: str) -> tuple[Candidate, ...]:
        """Probe the backends that serve this type of device; highest priority first, then by name."""
        kind = device_type(device)
        infos = [backend.info for backend in self.backends.values() if kind in backend.info.device_types]
        infos.sort(key=lambda info: (-info.priority, info.name))
        return tuple(Candidate(info, self.probe(info.name, device)) for info in infos)

    def choosers(self) -> list[tuple[str, Callable[..., str | None]]]:
        """Overriding plugins that implement ``statehal_choose_backend``, in pluggy's order."""
        hook = "statehal_choose_backend"
        order = [implementation.plugin_name for implementation in reversed(self._hook_implementations(hook))]
        return [(name, self._caller(hook, name)) for name in order if self._overrides(name, hook)]

    def select(self, device: str, backend: str | None = None, environ: Mapping[str, str] | None = None) -> Selection:
        """Choose the backend for a device.

        In this order: ``backend``; ``STATEHAL_BACKEND``; ``statehal_choose_backend`` of an overriding plugin; the
        highest priority among the ready backends that serve the type of device. A named backend may be any installed
        one; nothing else is taken in its place.

        Raises:
            ArgumentError: ``device`` is no device string.
            UnknownBackend: the named one is not installed.
            PluginBroken: it failed to load; what it raised is the cause.
            ContractMismatch: it is written for another contract.
            BackendConflict: several distributions claim its name.
            BackendNotReady: it is not ready, or disabled; or nothing was named and nothing is ready.
            AmbiguousBackend: two share the highest priority.
        """
        return select(self, device, backend, environ)

    def providers(self, hook: str, backend: str) -> list[Provider]:
        """Who answers ``hook`` when ``backend`` is chosen: overriding plugins by name, the backend, the reference.

        Each ``call(request)`` asks that plugin alone, inside the wrappers of overriding plugins.

        Raises:
            ArgumentError: there is no such hook.
            UnknownBackend: and the other errors of ``select`` for a name that is not a loaded backend.
        """
        if hook not in HOOKS:
            raise ArgumentError(f"there is no hook {hook!r} (fix: {did_you_mean(hook, HOOKS) or ', '.join(HOOKS)})")
        require(self, backend)
        names = [*(name for name in self.overrides if self._overrides(name, hook)), backend]
        if backend != REFERENCE and REFERENCE in self.backends:
            names.append(REFERENCE)
        return [Provider(name, self._request_caller(hook, name)) for name in names if self._implements(hook, name)]

    def variables(self) -> tuple[env.Variable, ...]:
        """Environment variables that the loaded backends declare."""
        return tuple(variable for backend in self.backends.values() for variable in backend.info.variables)

    def _implements(self, hook: str, name: str) -> bool:
        return implements(self._manager, hook, name)

    def _overrides(self, name: str, hook: str) -> bool:
        return name in self.overrides and self._implements(hook, name)

    def _hook_implementations(self, hook: str) -> list[pluggy.HookImpl]:
        implementations: list[pluggy.HookImpl] = getattr(self._manager.hook, hook).get_hookimpls()
        return implementations

    def _caller(self, hook: str, name: str) -> Callable[..., Any]:
        return single_caller(self._manager, hook, name, self.backends)

    def _request_caller(self, hook: str, name: str) -> Callable[[Any], Any]:
        caller = self._caller(hook, name)

        def call(request: object) -> Any:
            return caller(request=request)

        return call
