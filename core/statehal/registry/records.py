"""What discovery finds, as data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from statehal.errors import BackendConflict, BackendError
from statehal.hookspecs import BackendInfo, Probe


class DistributionLike(Protocol):
    """The part of ``importlib.metadata.Distribution`` that discovery reads."""

    @property
    def name(self) -> str:
        """Name of the distribution."""
        ...

    @property
    def version(self) -> str:
        """Its version."""
        ...


class EntryPointLike(Protocol):
    """The part of ``importlib.metadata.EntryPoint`` that discovery reads."""

    @property
    def name(self) -> str:
        """Name of the plugin."""
        ...

    @property
    def value(self) -> str:
        """``module`` or ``module:attribute``."""
        ...

    @property
    def dist(self) -> DistributionLike | None:
        """The distribution that declares it."""
        ...

    def load(self) -> Any:
        """Import the plugin."""
        ...


@dataclass(frozen=True)
class Source:
    """Where a plugin comes from: its distribution and the object its entry point names."""

    distribution: str
    version: str
    value: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.value})".replace("  ", " ")


@dataclass(frozen=True)
class Plugin:
    """A plugin that was loaded and registered."""

    name: str
    source: Source
    plugin: object


@dataclass(frozen=True)
class Backend(Plugin):
    """A plugin that is a backend, and what it says about itself."""

    info: BackendInfo


@dataclass(frozen=True)
class Failure:
    """A plugin that was refused.

    Attributes:
        name: of its entry point.
        source: where it comes from.
        error: the error class that a request for it raises.
        reason: what happened.
        fix: what to do.
        cause: what the plugin raised; ``None`` where it broke the contract without raising.
        traceback: of the cause; empty where there is none.
    """

    name: str
    source: Source
    error: type[BackendError]
    reason: str
    fix: str
    cause: BaseException | None = None
    traceback: str = ""

    def __str__(self) -> str:
        return f"plugin {self.name!r} of {self.source}: {self.reason} (fix: {self.fix})"

    def to_error(self, asked: str = "") -> BackendError:
        """A new error to raise, with what the plugin raised as its cause; ``asked`` says who asked for it."""
        more = "; statehal doctor prints the traceback" if self.traceback else ""
        error = self.error(f"{asked}{replace(self, fix=self.fix + more)}")
        error.__cause__ = self.cause
        return error


@dataclass(frozen=True)
class Conflict:
    """A name that several distributions claim; none of them is loaded."""

    name: str
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        return f"the name {self.name!r} is claimed by {' and by '.join(map(str, self.sources))} (fix: {self.fix})"

    @property
    def fix(self) -> str:
        """What to do."""
        names = ", ".join(source.distribution for source in self.sources)
        return f"uninstall all but one of {names}, or set STATEHAL_DISABLE={self.name} to do without"

    def to_error(self, asked: str = "") -> BackendConflict:
        """A new error to raise; ``asked`` says who asked for the name."""
        return BackendConflict(f"{asked}{self}")


class Candidate(NamedTuple):
    """A backend that was considered for a device, and what its probe said."""

    info: BackendInfo
    probe: Probe


class Provider(NamedTuple):
    """A plugin's answer to one hook: ``call(request)`` returns what it provides, or ``None``."""

    name: str
    call: Callable[[Any], Any]


@dataclass(frozen=True)
class Selection:
    """The backend for a device, and why.

    ``candidates`` are the backends that were probed, highest priority first; only the one where it was named.
    """

    name: str
    device: str
    info: BackendInfo
    probe: Probe
    reason: str
    candidates: tuple[Candidate, ...]
