"""``STATEHAL_TRACE=1``: pluggy's own hook trace on stderr."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import pluggy

from statehal.trace.describe import describe
from statehal.trace.monitor import listen

_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Shown(NamedTuple):
    """A described value; pluggy would put a plain string with blanks into quotes."""

    text: str

    def __str__(self) -> str:
        return self.text


class _Printer:
    """Hands each hook call to pluggy's tracer, with described values instead of the values."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._trace = manager.trace.root.get("hook")
        # stderr is looked up at each line: it may be replaced while the process runs
        manager.trace.root.setwriter(lambda text: sys.stderr.write(text))

    def hook_started(self, hook: str, implementations: tuple[str, ...], arguments: Mapping[str, object]) -> str:
        self._trace.root.indent += 1
        shown = {name: _Shown(describe(value)) for name, value in arguments.items()}
        self._trace(hook, {**shown, "implementations": _Shown(", ".join(implementations) or "none")})
        return hook

    def hook_ended(self, started: str, result: object, error: BaseException | None) -> None:
        if error is None:
            self._trace("finish", started, "-->", describe(result))
        else:
            self._trace("raise", started, "-->", describe(error))
        self._trace.root.indent -= 1


class TextTracer:
    """Prints hook calls; bound operations are left alone and cost nothing."""

    def attach(self, manager: pluggy.PluginManager) -> None:
        """Print every hook call of ``manager`` from now on."""
        listen(manager, _Printer(manager))

    def wrap(self, op: str, backend: str, method: _Method) -> _Method:
        """Return ``method`` itself."""
        return method
