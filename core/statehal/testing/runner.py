"""Running checks, with what a backend declares about itself taken into account."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from hypothesis import given

from statehal._suggest import did_you_mean
from statehal.errors import ArgumentError, BackendError
from statehal.testing.check import REGISTERED, Check
from statehal.testing.checks import CHECKS
from statehal.testing.evidence import level
from statehal.testing.failure import cause, message
from statehal.testing.profiles import ProfileName, profile
from statehal.testing.report import Report, Result, Status
from statehal.testing.target import Target
from statehal.testing.whose import explained

MOST_NEEDS = 3
"""How many unmet needs are told of a run of nothing."""


def run_check(check: Check, target: Target, *, profile_name: ProfileName = "ci", shrink: bool = True) -> Result:
    """Run one check, whatever the backend claims or declares.

    Returns:
        ``passed`` or ``failed``.
    """
    started = time.perf_counter()
    features: Counter[str] = Counter()
    examples = 0
    failing: object = None

    def once(case: object) -> None:
        nonlocal examples, failing
        examples += 1
        features.update(case.features)  # type: ignore[attr-defined]  # of the protocol Case
        try:
            check.run(target, case)
        except BaseException:
            failing = case  # the last one is the smallest
            raise

    def result(status: Status, text: str = "", by: str = "") -> Result:
        seconds = time.perf_counter() - started
        return Result(check.name, status, "", text, by, dict(features), examples, seconds)

    try:
        if check.cases is None:
            check.run(target)
        else:
            profile(profile_name, shrink=shrink)(given(check.cases(target))(once))()
    except (Exception, SystemExit) as error:
        return result("failed", message(check, error, failing, target.overrides), cause(error))
    missing = sorted(check.due(target) - set(features))
    if check.cases is not None and missing and profile_name != "dev":
        text = f"{check.name}: {check.statement}\nno example of {examples} had: {', '.join(missing)}"
        return result("failed", text, "coverage")
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
        BackendError: the backend is unknown or not ready, as ``Registry.select`` says it.
    """
    chosen = select(CHECKS.values() if checks is None else checks, only)
    target.registry.select(target.device, target.backend)
    results = []
    faults = stray_deviations(target) if only is None and checks is None else []
    nothing = obstacle(target)
    for check in [] if nothing else chosen:
        result = judge(check, target, profile_name=profile_name)
        results.append(result)
        if progress is not None:
            progress(check, result)
    faults += [nothing] if nothing else nothing_applies(target, chosen)
    overrides = {} if nothing else target.overrides
    return Report(target.backend, target.device, profile_name, level(target), tuple(results), tuple(faults), overrides)


def select(checks: Iterable[Check], only: str | None) -> list[Check]:
    """The checks whose topic or name matches ``only``."""
    checks = list(checks)
    chosen = [one for one in checks if only is None or one.topic == only or fnmatchcase(one.name, only)]
    if not chosen:
        topics = list(dict.fromkeys(one.topic for one in checks))
        hint = did_you_mean(only or "", [*topics, *(one.name for one in checks)])
        fix = f"{hint} " * bool(hint) + f"a topic of {', '.join(topics)}, or a pattern of names"
        raise ArgumentError(f"no check matches {only!r} (fix: {fix})")
    return chosen


def judge(check: Check, target: Target, *, profile_name: ProfileName = "ci", shrink: bool = True) -> Result:
    """Run a check if the backend claims what it needs, and hold the outcome against the declared deviations."""
    left_out = not_run(check, target)
    if left_out is not None:
        return left_out
    expected = _declared(target.info.expected_failures, check.name)
    result = run_check(check, target, profile_name=profile_name, shrink=shrink)
    if not expected:
        return result
    if result.status == "passed":
        text = (
            f"{check.name}: {check.statement}\nit passed, and {target.backend!r} declares that it fails: {expected} "
            "(fix: take it out of expected_failures)"
        )
        return replace(result, status="failed", reason=expected, message=text, by="unexpected pass")
    return replace(result, status="xfailed", reason=expected)


def not_run(check: Check, target: Target) -> Result | None:
    """The result of a check that is not run, with why; ``None`` for one that is."""
    reason = target.lacks(check.needs)
    if reason:
        return Result(check.name, "filtered", reason)
    unsupported = _declared(target.info.unsupported, check.name)
    return Result(check.name, "skipped", unsupported) if unsupported else None


def obstacle(target: Target) -> str:
    """Why no check can be run on this backend: it cannot be bound, or fails when asked for its methods."""
    try:
        target.binding()
        _ = target.offers
    except BackendError as error:
        return str(error)
    except (Exception, SystemExit) as error:
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
        return f"{target.backend!r} on {target.device!r} cannot be asked for its methods: {error}{notes}"
    return ""


def nothing_applies(target: Target, checks: Iterable[Check]) -> list[str]:
    """A fault where not one of these checks would be run, with the first thing that each kind of them needs."""
    checks = list(checks)
    left_out = [not_run(check, target) for check in checks]
    if None in left_out:
        return []
    count = Counter(result.status for result in left_out if result is not None)
    text = f"no check was run: of {len(left_out)}, {count['filtered']} were filtered and {count['skipped']} skipped"
    needs = list(dict.fromkeys(need for check in checks for need in target.missing(check.needs)[:1]))
    lines = [text, *(explained(target, need) for need in needs[:MOST_NEEDS])]
    if needs[MOST_NEEDS:]:
        lines.append(f"and {len(needs) - MOST_NEEDS} more needs")
    fix = "provide these, and claim what the backend does in capabilities" if needs else "take out unsupported"
    return [f"{'; '.join(lines)} (fix: {fix})"]


def stray_deviations(target: Target) -> list[str]:
    """What is wrong with the deviations that a backend declares."""
    info = target.info
    return [
        f"{target.backend!r} declares {pattern!r} in {name} ({reason}), which matches no check (fix: remove it)"
        for name in ("unsupported", "expected_failures")
        for pattern, reason in getattr(info, name).items()
        if not any(fnmatchcase(check, pattern) for check in REGISTERED)
    ]


def _declared(patterns: Mapping[str, str], name: str) -> str:
    return next((reason for pattern, reason in patterns.items() if fnmatchcase(name, pattern)), "")
