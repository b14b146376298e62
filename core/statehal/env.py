"""Every environment variable that statehal reads, with its default and meaning, and the typed readers.

A plugin's own variables are ``Variable`` objects too: it reads them through the object and declares them in
``BackendInfo.variables``, so that ``statehal doctor`` knows them.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from statehal.errors import EnvError

PREFIX = "STATEHAL_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True)
class Variable:
    """One environment variable; readers take ``environ`` for tests and read ``os.environ`` otherwise.

    Examples:
        >>> isa = Variable("STATEHAL_CPU_ISA", "auto", "instruction set of the kernels", ("auto", "avx2"))
        >>> isa.choice({"STATEHAL_CPU_ISA": "avx2"})
        'avx2'
        >>> isa.choice({"STATEHAL_CPU_ISA": "avx"})
        Traceback (most recent call last):
        statehal.errors.EnvError: STATEHAL_CPU_ISA='avx': expected one of auto, avx2 (fix: unset it or use one of these)
    """

    name: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()

    def text(self, environ: Mapping[str, str] | None = None) -> str:
        """The value without surrounding blanks; an empty one counts as unset and gives the default."""
        source = os.environ if environ is None else environ
        return source.get(self.name, "").strip() or self.default

    def flag(self, environ: Mapping[str, str] | None = None) -> bool:
        """The value as a switch.

        Raises:
            EnvError: it is neither of 1, true, yes, on nor of 0, false, no, off.
        """
        value = self.text(environ)
        if value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        raise EnvError(f"{self.name}={value!r}: expected 1 or 0 (fix: unset it or use 1 or 0)")

    def names(self, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """The value as a comma-separated list, sorted, without empty parts and repetitions."""
        return tuple(sorted({part.strip() for part in self.text(environ).split(",")} - {""}))

    def choice(self, environ: Mapping[str, str] | None = None) -> str:
        """The value, which must be one of ``choices``.

        Raises:
            EnvError: it is not.
        """
        value = self.text(environ)
        if value in self.choices:
            return value
        raise EnvError(
            f"{self.name}={value!r}: expected one of {', '.join(self.choices)} (fix: unset it or use one of these)"
        )

    def number(self, environ: Mapping[str, str] | None = None) -> int:
        """The value as an integer of at least 0.

        Raises:
            EnvError: it is not one.
        """
        value = self.text(environ)
        if value.isascii() and value.isdigit():
            return int(value)
        raise EnvError(f"{self.name}={value!r}: expected an integer of at least 0 (fix: unset it or use one)")


BACKEND = Variable("STATEHAL_BACKEND", "", "the backend to use where the program names none")
CHECK = Variable("STATEHAL_CHECK", "0", "1: add the checks that cost a device sync")
DISABLE = Variable("STATEHAL_DISABLE", "", "plugins, comma-separated, that are not even imported")
STRICT = Variable("STATEHAL_STRICT", "0", "1: an error of any plugin is raised at discovery instead of recorded")
TRACE = Variable("STATEHAL_TRACE", "", "1: print hook calls; FILE.json: write Chrome trace events (%i: process id)")

VARIABLES = (BACKEND, CHECK, DISABLE, STRICT, TRACE)
"""All variables of the core."""

TRITON_INTERPRET = Variable(
    "TRITON_INTERPRET", "0", "1: Triton interprets kernels on the host instead of compiling them"
)
RANK = Variable("RANK", "0", "this process's rank, as launchers set it")
WORLD_SIZE = Variable("WORLD_SIZE", "1", "how many ranks there are, as launchers set it")


@dataclass(frozen=True)
class TraceSetting:
    """Where a trace goes: text on stderr, or Chrome trace events in the file at ``path``."""

    kind: Literal["text", "chrome"]
    path: str = ""


def backend(environ: Mapping[str, str] | None = None) -> str | None:
    """The requested backend, ``None`` where there is none."""
    return BACKEND.text(environ) or None


def check(environ: Mapping[str, str] | None = None) -> bool:
    """Whether to add the checks that cost a device sync."""
    return CHECK.flag(environ)


def disabled(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names of the plugins to keep out."""
    return DISABLE.names(environ)


def strict(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a plugin's error is raised at discovery."""
    return STRICT.flag(environ)


def trace(environ: Mapping[str, str] | None = None) -> TraceSetting | None:
    """Where a trace goes, ``None`` where there is none; ``%i`` is still in the path.

    Raises:
        EnvError: neither a switch nor a path that ends in ``.json``, or one path for several ranks.
    """
    value = TRACE.text(environ)
    if not value or value.lower() in _FALSE:
        return None
    if value.lower() in _TRUE:
        return TraceSetting("text")
    if not value.endswith(".json"):
        # A misspelt switch would otherwise become a file of that name.
        raise EnvError(f"{TRACE.name}={value!r}: expected 1, 0 or a path ending in .json (fix: use one of these)")
    if WORLD_SIZE.number(environ) > 1 and "%i" not in value:
        raise EnvError(
            f"{TRACE.name}={value!r}: {WORLD_SIZE.number(environ)} ranks would overwrite one file "
            "(fix: put %i, the process id, into the path)"
        )
    return TraceSetting("chrome", value)


def unknown(environ: Mapping[str, str] | None = None, declared: Iterable[Variable] = ()) -> dict[str, str]:
    """Variables that start with ``STATEHAL_`` and that nobody reads, each with the known name nearest to it.

    ``declared`` are the variables of the plugins. The nearest name is empty where none is near.

    Examples:
        >>> unknown({"STATEHAL_BAKEND": "cpu", "STATEHAL_CHECK": "1", "PATH": "/bin"})
        {'STATEHAL_BAKEND': 'STATEHAL_BACKEND'}
    """
    source = os.environ if environ is None else environ
    known = {variable.name for variable in (*VARIABLES, *declared)}
    found = sorted(name for name in source if name.startswith(PREFIX) and name not in known)
    # without the prefix, which would make all names look alike
    ends = sorted(name.removeprefix(PREFIX) for name in known)
    near = {name: difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1) for name in found}
    return {name: PREFIX + ends[0] if ends else "" for name, ends in near.items()}


def interpreted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether Triton interprets kernels in this process; it takes ``y`` for a yes, too, and anything else for a no."""
    return TRITON_INTERPRET.text(environ).lower() in _TRUE | {"y"}
