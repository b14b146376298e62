"""Which backend serves a device: the argument, ``STATEHAL_BACKEND``, a host's hook, priority."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from statehal import env
from statehal._suggest import did_you_mean, listed
from statehal.errors import AmbiguousBackend, ArgumentError, BackendNotReady, PluginBroken, UnknownBackend
from statehal.hookspecs import ENTRY_POINT_GROUP, BackendInfo, Probe
from statehal.registry.records import Candidate, Selection

if TYPE_CHECKING:
    from statehal.registry.registry import Registry

logger = logging.getLogger("statehal")

_INSTALL = (
    "name one of these, or install a distribution with the entry point {!r} in "
    f"{ENTRY_POINT_GROUP!r}; after a change of its pyproject.toml, install it again"
)


def device_type(device: str) -> str:
    """The type of a device string.

    Raises:
        ArgumentError: it is no device string.

    Examples:
        >>> device_type("cuda:1")
        'cuda'
    """
    match = re.fullmatch(r"([a-z][a-z0-9_]*)(:\d+)?", device)
    if match is None:
        raise ArgumentError(f"device={device!r} is not a device (fix: pass a type or a type and number, as 'cuda:0')")
    return match[1]


def select(registry: "Registry", device: str, backend: str | None, environ: Mapping[str, str] | None) -> Selection:
    """Choose as ``Registry.select`` documents."""
    kind = device_type(device)
    if backend is not None:
        return _named(registry, device, backend, "named by the caller", "")
    requested = env.backend(environ)
    if requested is not None:
        asked = f"STATEHAL_BACKEND={requested}"
        return _named(registry, device, requested, f"named by {asked}", f"{asked}: ")
    candidates = registry.candidates(device)
    ready = tuple(candidate for candidate in candidates if candidate.probe.state == "ready")
    infos = tuple(candidate.info for candidate in ready)
    for plugin, choose in registry.choosers():
        choice = _ask(plugin, choose, device, infos)
        if choice is not None:
            asked = f"plugin {plugin!r} chose {choice!r}: "
            return _named(registry, device, choice, f"named by statehal_choose_backend of plugin {plugin!r}", asked)
    if not ready:
        raise _nothing_ready(registry, device, kind, candidates)
    return _highest(registry, device, candidates, ready)


def _ask(plugin: str, choose: Callable[..., object], device: str, candidates: tuple[BackendInfo, ...]) -> str | None:
    fix = f"repair the plugin, or set STATEHAL_DISABLE={plugin}"
    try:
        choice = choose(device=device, candidates=candidates)
    except Exception as error:
        raise PluginBroken(
            f"plugin {plugin!r} failed in statehal_choose_backend: {type(error).__name__}: {error} (fix: {fix})"
        ) from error
    if choice is None or isinstance(choice, str):
        return choice
    raise PluginBroken(
        f"statehal_choose_backend of plugin {plugin!r} returned {type(choice).__name__}: expected a name (fix: {fix})"
    )


def require(registry: "Registry", name: str, asked: str = "") -> None:
    """Refuse a name that is not a loaded backend, with the reason; ``asked`` says who asked for it.

    Raises:
        PluginBroken: it failed to load.
        ContractMismatch: it is written for another contract.
        BackendConflict: several distributions claim it.
        BackendNotReady: it is disabled.
        UnknownBackend: none of that name is installed.
    """
    if name in registry.backends:
        return
    if name in registry.failures:
        raise registry.failures[name].to_error(asked)
    if name in registry.conflicts:
        raise registry.conflicts[name].to_error(asked)
    if registry.disabled.get(name):
        raise BackendNotReady(
            f"{asked}backend {name!r} is kept out by STATEHAL_DISABLE (fix: take it out of STATEHAL_DISABLE)"
        )
    if name in registry.overrides:
        raise UnknownBackend(
            f"{asked}plugin {name!r} is no backend, it overrides what a backend provides (fix: name one of "
            f"{listed(registry.backends)})"
        )
    hint = did_you_mean(name, (*registry.backends, *registry.failures, *registry.conflicts))
    raise UnknownBackend(
        f"{asked}no backend {name!r} is installed; installed are {listed(registry.backends)} (fix: "
        f"{hint or _INSTALL.format(name)})"
    )


def _named(registry: "Registry", device: str, name: str, reason: str, asked: str) -> Selection:
    require(registry, name, asked)
    probe = registry.probe(name, device)
    if probe.state != "ready":
        raise BackendNotReady(f"{asked}backend {name!r} is {_state(probe)} for {device!r}: {_why(probe)}")
    info = registry.backends[name].info
    return Selection(name, device, info, probe, reason, (Candidate(info, probe),))


def _highest(
    registry: "Registry", device: str, candidates: tuple[Candidate, ...], ready: tuple[Candidate, ...]
) -> Selection:
    best = ready[0]
    tied = sorted(candidate.info.name for candidate in ready if candidate.info.priority == best.info.priority)
    if len(tied) > 1:
        raise AmbiguousBackend(
            f"backends {' and '.join(map(repr, tied))} are ready for {device!r} with priority {best.info.priority} "
            f"(fix: pass backend={tied[0]!r}, or set STATEHAL_BACKEND={tied[0]} or STATEHAL_DISABLE={tied[-1]})"
        )
    ranking = ", ".join(f"{candidate.info.name!r} {candidate.info.priority}" for candidate in ready)
    reason = f"highest priority of the ready: {ranking}"
    for candidate in candidates[: candidates.index(best)]:
        reason += f"; passed over {candidate.info.name!r}, {_state(candidate.probe)}: {_why(candidate.probe)}"
        if candidate.probe.state == "broken":
            logger.warning("backend %r is broken on %r: %s", candidate.info.name, device, _why(candidate.probe))
    refused = sorted({*registry.failures, *registry.conflicts})
    if refused:
        reason += f"; refused at discovery: {listed(refused)}"
    return Selection(best.info.name, device, best.info, best.probe, reason, candidates)


def _nothing_ready(registry: "Registry", device: str, kind: str, candidates: tuple[Candidate, ...]) -> BackendNotReady:
    refused = sorted({*registry.failures, *registry.conflicts})
    tail = f"; refused at discovery: {listed(refused)}" if refused else ""
    if not candidates:
        return BackendNotReady(
            f"no installed backend serves {kind!r} devices; installed are {listed(registry.backends)}{tail} "
            f"(fix: install a backend for {kind!r}, or name an installed one)"
        )
    states = "; ".join(f"{c.info.name!r} is {_state(c.probe)}: {_why(c.probe)}" for c in candidates)
    return BackendNotReady(f"no backend is ready for {device!r}: {states}{tail}")


def _state(probe: Probe) -> str:
    return "not ready" if probe.state == "unavailable" else probe.state


def _why(probe: Probe) -> str:
    return f"{probe.reason} (fix: {probe.fix})" if probe.fix else probe.reason
