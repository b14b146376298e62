"""Looking at everything that is installed."""

import os
import platform
import re
from collections.abc import Iterator, Mapping
from typing import Any

from statehal import __version__, env, trace
from statehal.doctor.report import BackendReport, DeviceReport, Problem, Report, Severity
from statehal.doctor.torch_build import import_torch, present_devices
from statehal.errors import BackendNotReady, EnvError, StatehalError
from statehal.hookspecs import CONTRACT
from statehal.registry import REFERENCE, Backend, Registry, device_type

HOST = "cpu"
"""The backend of C++ kernels; it is a distribution of its own, because it has to be compiled."""

HOST_FIX = "pip install statehal-cpu, which takes a compiler of C++17 where no wheel fits"
SLOWER = "a prefill of 512 tokens and decodes of 1 and 16 by causal conv1d take 40 to 270 times as long"
"""Measured, on one thread, 8192 channels of bfloat16; of nothing else."""


def report(device: str | None = None, *, environ: Mapping[str, str] | None = None) -> Report:
    """Look at everything that is installed; ``device`` asks about one device instead of those present.

    Whatever is wrong becomes a ``Problem`` of the report. Scans anew: what it finds is the state of now.

    Raises:
        ArgumentError: ``device`` is no device string.
    """
    if device is not None:
        device_type(device)
    given = dict(os.environ if environ is None else environ)
    settings = dict(given)
    problems = list(_variable_problems(settings))
    torch = import_torch(problems)
    registry = Registry.discover(environ=settings)
    present = [device] if device is not None else present_devices(torch)
    choices = [_choice(registry, name, settings) for name in present]
    backends = [row for backend in registry.backends.values() for row in _rows(registry, backend, present)]
    problems += _plugin_problems(registry, backends)
    problems += _choice_problems(choices, asked=device is not None, requested=env.backend(settings) is not None)
    problems += _unknown_variables(settings, registry)
    problems += _slow_host(registry, choices)
    problems.sort(key=lambda problem: ("missing", "broken", "note").index(problem.severity))
    devices = tuple(row for row, _ in choices)
    known = (*env.VARIABLES, *registry.variables())
    return Report(
        verdict=_verdict(devices, problems),
        exit_code={"missing": 2, "broken": 1}.get(problems[0].severity, 0) if problems else 0,
        versions=_versions(torch),
        requested=env.backend(settings),
        devices=devices,
        backends=tuple(backends),
        overrides={name: str(plugin.source) for name, plugin in registry.overrides.items()},
        problems=tuple(problems),
        variables={variable.name: given[variable.name] for variable in known if variable.name in given},
    )


def _variable_problems(settings: dict[str, str]) -> Iterator[Problem]:
    """Report values that cannot be read and take them out of ``settings``, so that the scan goes on without."""
    settings.pop(env.STRICT.name, None)  # a strict scan would end at the first broken plugin
    for variable, read in ((env.CHECK, env.check), (env.TRACE, trace.current)):
        try:
            read(settings)
        except EnvError as error:
            yield _problem("broken", error)
            del settings[variable.name]


def _choice(registry: Registry, device: str, settings: Mapping[str, str]) -> tuple[DeviceReport, StatehalError | None]:
    try:
        chosen = registry.select(device, environ=settings)
    except StatehalError as error:
        return DeviceReport(device, None, str(error)), error
    return DeviceReport(device, chosen.name, chosen.reason), None


def _rows(registry: Registry, backend: Backend, present: list[str]) -> Iterator[BackendReport]:
    info = backend.info
    served = [device for device in present if device_type(device) in info.device_types]
    for device in served or sorted(info.device_types) or present:
        probe = registry.probe(backend.name, device)
        yield BackendReport(
            name=backend.name,
            device=device,
            state=probe.state,
            reason=probe.reason,
            fix=probe.fix,
            priority=info.priority,
            capabilities=tuple(sorted(info.capabilities)),
            contract=_dotted(info.contract),
            distribution=str(backend.source),
            description=info.description,
            details={str(key): str(value) for key, value in probe.details.items()},
        )


def _plugin_problems(registry: Registry, backends: list[BackendReport]) -> Iterator[Problem]:
    for failure in registry.failures.values():
        text = f"plugin {failure.name!r} of {failure.source}: {failure.reason}"
        yield Problem("broken", text, failure.fix, failure.traceback)
    for conflict in registry.conflicts.values():
        yield _problem("broken", conflict)
    for row in backends:
        if row.state == "broken":
            text = f"backend {row.name!r} of {row.distribution} is broken for {row.device!r}: {row.reason}"
            yield Problem("broken", text, row.fix, row.details.get("traceback", ""))
    for name, installed in registry.disabled.items():
        if installed:
            yield Problem("note", f"plugin {name!r} is kept out by STATEHAL_DISABLE", "take it out of STATEHAL_DISABLE")
        else:
            yield Problem("note", f"STATEHAL_DISABLE names {name!r}, which is not installed", "correct or remove it")


def _choice_problems(
    choices: list[tuple[DeviceReport, StatehalError | None]], *, asked: bool, requested: bool
) -> Iterator[Problem]:
    """Devices without a backend: fine as long as another has one, unless this device was asked about."""
    served = any(error is None for _, error in choices)
    for error in {str(error): error for _, error in choices}.values():
        if error is None or (requested and served):
            continue
        if requested or (asked and isinstance(error, BackendNotReady)):
            yield _problem("missing", error)
        else:
            harmless = served and isinstance(error, BackendNotReady)
            yield _problem("note" if harmless else "broken", error)


def _unknown_variables(settings: Mapping[str, str], registry: Registry) -> Iterator[Problem]:
    for name, near in env.unknown(settings, registry.variables()).items():
        yield Problem("note", f"{name} is no variable of statehal", f"did you mean {near}?" if near else "unset it")


def _slow_host(registry: Registry, choices: list[tuple[DeviceReport, StatehalError | None]]) -> Iterator[Problem]:
    """The reference is written to be read: what it costs where nothing else serves the host."""
    installed = {*registry.backends, *registry.failures, *registry.conflicts, *registry.disabled}
    if (
        REFERENCE in registry.backends
        and HOST not in installed
        and ("cpu", REFERENCE) in {(row.device, row.backend) for row, _ in choices}
    ):
        yield Problem("note", f"the reference serves the CPU: {SLOWER} as by C++ kernels", HOST_FIX)


def _problem(severity: Severity, error: object) -> Problem:
    """A problem from a text that ends in ``(fix: ...)``."""
    text = str(error)
    match = re.fullmatch(r"(.*) \(fix: (.*)\)", text, re.DOTALL)
    return Problem(severity, match[1], match[2]) if match else Problem(severity, text, "")


def _verdict(devices: tuple[DeviceReport, ...], problems: list[Problem]) -> str:
    serious = [problem for problem in problems if problem.severity != "note"]
    if serious:
        more = f" (and {len(serious) - 1} more)" if len(serious) > 1 else ""
        return f"{serious[0].severity}: {serious[0].text}{more}"
    return "ok: " + ", ".join(f"{row.backend or 'no backend'} for {row.device}" for row in devices)


def _versions(torch: Any) -> dict[str, str]:
    return {
        "statehal": __version__,
        "contract": _dotted(CONTRACT),
        "python": platform.python_version(),
        "torch": str(torch.__version__) if torch else "not importable",
    }


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
