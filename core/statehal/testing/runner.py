"""Running checks, with what a backend declares about itself taken into account."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from hypothesis import given

from statehal.errors import ArgumentError
from statehal.testing.check import REGISTERED, Check
from statehal.testing.evidence import level
from statehal.testing.profiles import ProfileName, profile
from statehal.testing.report import Report, Result
from statehal.testing.target import Target


def run_check(check: Check, target: Target, *, profile_name: ProfileName = "ci", shrink: bool = True) -> Result:
    """Run one check, whatever the backend claims or declares.

    Returns:
        ``passed`` or ``failed``.
    """
    started = time.perf_counter()
    features: Counter[str] = Counter()
    examples = 0

    def once(case: object) -> None:
        nonlocal examples
        examples += 1
        features.update(case.features)  # type: ignore[attr-defined]  # of the protocol Case
        check.run(target, case)

    def result(status: str, message: str = "", by: str = "") -> Result:
        seconds = time.perf_counter() - started
        return Result(check.name, status, "", message, by, dict(features), examples, seconds)  # type: ignore[arg-type]

    try:
        if check.cases is None:
            check.run(target)
        else:
            profile(profile_name, shrink=shrink)(given(check.cases(target))(once))()
    except AssertionError as error:
        return result("failed", _message(check, error), "assertion")
    except Exception as error:
        return result("failed", _message(check, error), type(error).__name__)
    missing = sorted(check.features - set(features))
    if check.cases is not None and missing and profile_name != "dev":
        return result("failed", f"{check.name}: no example of {examples} had {', '.join(missing)}", "coverage")
    return result("passed")


def run(
    target: Target,
    checks: Iterable[Check] | None = None,
    *,
    profile_name: ProfileName = "ci",
    only: str | None = None,
    progress: Callable[[Check, Result], None] | None = None,
) -> Report:
    """Run the checks that apply to a backend.

    Args:
        checks: all of them by default.
        only: a topic, or a pattern of names such as ``"kv_*"``.
        progress: called after each.

    Raises:
        ArgumentError: ``only`` matches no check.
    """
    chosen = select(REGISTERED.values() if checks is None else checks, only)
    results = []
    for check in chosen:
        result = judge(check, target, profile_name=profile_name)
        results.append(result)
        if progress is not None:
            progress(check, result)
    faults = stray_deviations(target) if only is None and checks is None else []
    if not any(result.status in ("passed", "failed", "xfailed") for result in results):
        faults.append(f"no check was run: all {len(results)} were skipped or filtered")
    return Report(target.backend, target.device, profile_name, level(target), tuple(results), tuple(faults))


def select(checks: Iterable[Check], only: str | None) -> list[Check]:
    """The checks whose topic or name matches ``only``."""
    checks = list(checks)
    chosen = [one for one in checks if only is None or one.topic == only or fnmatchcase(one.name, only)]
    if not chosen:
        topics = ", ".join(dict.fromkeys(one.topic for one in checks))
        raise ArgumentError(f"no check matches {only!r} (fix: a topic of {topics}, or a pattern of names)")
    return chosen


def judge(check: Check, target: Target, *, profile_name: ProfileName = "ci", shrink: bool = True) -> Result:
    """Run a check if the backend claims what it needs, and hold the outcome against the declared deviations."""
    reason = target.lacks(check.needs)
    if reason:
        return Result(check.name, "filtered", reason)
    unsupported = _declared(target.info.unsupported, check.name)
    if unsupported:
        return Result(check.name, "skipped", unsupported)
    expected = _declared(target.info.expected_failures, check.name)
    result = run_check(check, target, profile_name=profile_name, shrink=shrink)
    if not expected:
        return result
    if result.status == "passed":
        text = f"{check.name} passed, and the backend declares that it fails: {expected} (fix: remove the declaration)"
        return Result(check.name, "failed", expected, text, "unexpected pass", result.features, result.examples)
    return Result(check.name, "xfailed", expected, result.message, result.by, result.features, result.examples)


def stray_deviations(target: Target) -> list[str]:
    """What is wrong with the deviations that a backend declares."""
    return [
        f"{target.backend!r} declares {pattern!r} ({reason}), which matches no check (fix: remove it)"
        for pattern, reason in [*target.info.unsupported.items(), *target.info.expected_failures.items()]
        if not any(fnmatchcase(name, pattern) for name in REGISTERED)
    ]


def _declared(patterns: object, name: str) -> str:
    for pattern, reason in patterns.items():  # type: ignore[attr-defined]
        if fnmatchcase(name, pattern):
            return str(reason)
    return ""


def _message(check: Check, error: BaseException) -> str:
    """The statement, then the evidence and the example."""
    notes = "\n".join(getattr(error, "__notes__", []))
    text = str(error) or type(error).__name__
    return f"{check.name}: {check.statement}\n{text}" + (f"\n{notes}" if notes else "")
