"""Loading plugins so that none can take down the others."""

import logging
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pluggy

from statehal.errors import PluginBroken
from statehal.hookspecs import PROJECT, BackendInfo, HookSpecs
from statehal.registry.providers import implements, single_caller
from statehal.registry.records import Backend, Conflict, EntryPointLike, Failure, Plugin, Source
from statehal.registry.scan import claims, source_of
from statehal.registry.validation import Objection, object_to_hooks, object_to_info, object_to_spelling, object_to_value

logger = logging.getLogger("statehal")


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the hooks and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    return manager


@dataclass
class Discovery:
    """One scan; filled by ``run`` and read by the registry."""

    manager: pluggy.PluginManager
    strict: bool
    backends: dict[str, Backend] = field(default_factory=dict)
    overrides: dict[str, Plugin] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    conflicts: dict[str, Conflict] = field(default_factory=dict)
    disabled: dict[str, bool] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)

    def run(self, points: Iterable[EntryPointLike], disabled: Iterable[str]) -> None:
        """Load, register and question every plugin that is not disabled; ``disabled`` maps to "is installed"."""
        points = list(points)
        installed = {point.name for point in points}
        self.disabled = {name: name in installed for name in disabled}
        for name in self.disabled:
            self.manager.set_blocked(name)
        single, conflicts = claims(point for point in points if point.name not in self.disabled)
        for conflict in conflicts.values():
            self.conflicts[conflict.name] = conflict
            if self.strict:
                raise conflict.to_error()
            logger.warning("%s", conflict)
        for name, point in single.items():
            self.sources[name] = source_of(point)
            self._refuse(name, object_to_value(point.value))
            if name not in self.failures:
                with self._guard(name):
                    self._register(name, point)
        self._check_spelling()
        for name in [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]:
            self._refuse(name, object_to_hooks(self.manager, name))
        self._question_backends()

    def record(self, failure: Failure) -> None:
        """Keep a failure and forget its plugin; under strict it is raised."""
        self.failures[failure.name] = failure
        if self.manager.get_plugin(failure.name) is not None:
            self.manager.unregister(name=failure.name)
        if self.strict:
            if failure.cause is None or isinstance(failure.cause, SystemExit):
                raise failure.to_error()  # SystemExit itself would end the process without a word
            failure.cause.add_note(str(failure))
            raise failure.cause
        logger.warning("%s", failure)

    def _register(self, name: str, point: EntryPointLike) -> None:
        plugin = point.load()
        if plugin is None:  # which pluggy would pass over without a word
            raise TypeError(f"{point.value} is None")
        if isinstance(plugin, type):
            plugin = plugin()
        hash(plugin)  # pluggy keeps plugins in sets
        self.manager.register(plugin, name=name)

    def _check_spelling(self) -> None:
        while True:
            try:
                self.manager.check_pending()
            except pluggy.PluginValidationError as error:
                name = self.manager.get_name(error.plugin)
                assert name is not None
                self._refuse(name, object_to_spelling(self.manager, name))
            else:
                return

    def _question_backends(self) -> None:
        named = [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]
        backends = [name for name in named if implements(self.manager, "statehal_backend_info", name)]
        for name in named:
            source, plugin = self.sources[name], self.manager.get_plugin(name)
            if name not in backends:
                self.overrides[name] = Plugin(name, source, plugin)
                continue
            info: object = None
            with self._guard(name):
                info = single_caller(self.manager, "statehal_backend_info", name, backends)()
            if name in self.failures:
                continue
            self._refuse(name, object_to_info(info, name))
            if isinstance(info, BackendInfo) and name not in self.failures:
                self.backends[name] = Backend(name, source, plugin, info)

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Record what a plugin raises, ``sys.exit`` included."""
        try:
            yield
        except (Exception, SystemExit) as error:
            text = " ".join(str(error).split())
            self.record(
                Failure(
                    name=name,
                    source=self.sources[name],
                    error=PluginBroken,
                    reason=f"{type(error).__name__}: {text}".removesuffix(": "),
                    fix=f"repair or uninstall {self.sources[name].distribution}, or set STATEHAL_DISABLE={name}",
                    cause=error,
                    traceback="".join(traceback.format_exception(error)),
                )
            )

    def _refuse(self, name: str, objection: Objection | None) -> None:
        if objection is not None:
            error, reason, fix = objection
            self.record(Failure(name, self.sources[name], error, reason, fix))
