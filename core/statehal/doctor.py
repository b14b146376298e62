"""What is installed, what is wrong with it and how to repair it, and which backend each device would get."""

import importlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from statehal import env, trace
from statehal.errors import BackendNotReady, EnvError, StatehalError
from statehal.hookspecs import CONTRACT
from statehal.registry import Backend, Registry, device_type


@dataclass(frozen=True)
class BackendReport:
    """A backend on one device: what its probe says, and what it says about itself."""

    name: str
    device: str
    state: str
    reason: str
    fix: str
    priority: int
    capabilities: tuple[str, ...]
    contract: str
    distribution: str
    description: str
    details: dict[str, str]


@dataclass(frozen=True)
class DeviceReport:
    """The backend that a device would get and why; ``None`` and the error where it would get none."""

    device: str
    backend: str | None
    reason: str


@dataclass(frozen=True)
class Problem:
    """Something broken, missing although it was requested, or worth a note."""

    severity: Literal["broken", "missing", "note"]
    text: str
    fix: str
    traceback: str = ""


@dataclass(frozen=True)
class Report:
    """All that ``statehal doctor`` shows.

    Attributes:
        verdict: one line.
        exit_code: 0, or 1 where something installed is broken, or 2 where what was requested is missing.
        versions: of statehal, the contract, Python and torch.
        requested: what ``STATEHAL_BACKEND`` names.
        devices: the choice for each device.
        backends: each loaded backend on each device it serves; on its device types where none is present.
        overrides: overriding plugins, and where they come from.
        problems: the worst first.
        variables: the variables that are set, with their values.
    """

    verdict: str
    exit_code: int
    versions: dict[str, str]
    requested: str | None
    devices: tuple[DeviceReport, ...]
    backends: tuple[BackendReport, ...]
    overrides: dict[str, str]
    problems: tuple[Problem, ...]
    variables: dict[str, str]

    def to_json(self) -> str:
        """The report as a JSON object, keys as the attributes."""
        return json.dumps(asdict(self), indent=2)


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
    torch = _torch(problems)
    registry = Registry.discover(environ=settings)
    present = [device] if device is not None else _devices(torch)
    choices = [_choice(registry, name, settings) for name in present]
    backends = [row for backend in registry.backends.values() for row in _rows(registry, backend, present)]
    problems += _plugin_problems(registry, backends)
    problems += _choice_problems(choices, asked=device is not None, requested=env.backend(settings) is not None)
    problems += _unknown_variables(settings, registry)
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


def _torch(problems: list[Problem]) -> Any:
    """The torch module; ``None``, and a problem, where it cannot be imported."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        problems.append(Problem("broken", f"torch cannot be imported: {error}", "install a build of torch"))
    except Exception as error:
        # torch imports the extensions of accelerators by itself, and they fail where a vendor's libraries are missing
        reasons = []
        link: BaseException | None = error
        while link is not None:
            reasons.append(f"{type(link).__name__}: {' '.join(str(link).split())}")
            link = link.__cause__ or link.__context__
        fix = "install what is missing, or uninstall the extension, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        problems.append(Problem("broken", f"torch cannot be imported: {'; from '.join(reasons)}", fix))
    return None


def _devices(torch: Any) -> list[str]:
    """The host, and every device of the accelerator that torch was built for."""
    found = ["cpu"]
    try:
        accelerator = torch.accelerator.current_accelerator(check_available=True) if torch else None
        if accelerator is not None:
            found += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    except Exception:
        # a driver that fails here fails in its backend's probe as well, and that says why
        return found
    return found


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


def _problem(severity: Literal["broken", "missing", "note"], error: object) -> Problem:
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
    try:
        own = importlib.metadata.version("statehal")
    except importlib.metadata.PackageNotFoundError:
        own = "not installed"
    found = str(torch.__version__) if torch else "not importable"
    return {"statehal": own, "contract": _dotted(CONTRACT), "python": platform.python_version(), "torch": found}


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
