"""What is said of a check that failed: the contract's sentence, then the evidence, then the inputs."""

from collections.abc import Mapping

from hypothesis.errors import FlakyFailure

from statehal.errors import Unsupported
from statehal.testing.check import Check


def cause(error: BaseException) -> str:
    """``"assertion"``, or the class of another exception."""
    first, _ = _unwrapped(error)
    return "assertion" if isinstance(first, AssertionError) else type(first).__name__


def message(check: Check, error: BaseException, case: object, overrides: Mapping[str, str]) -> str:
    """A text that begins with the check and its statement.

    Args:
        case: the inputs it failed with; ``None`` where it has none.
        overrides: the plugin that provides a method in the backend's place.
    """
    first, always = _unwrapped(error)
    text = str(first)
    if not isinstance(first, AssertionError):
        text = f"{type(first).__name__}: {text}".removesuffix(": ")
    lines = [f"{check.name}: {check.statement}", text or "AssertionError, without evidence"]
    lines += getattr(first, "__notes__", [])
    if isinstance(first, Unsupported):
        claims = " and ".join(repr(need) for need in sorted(check.needs)) or "what it provides"
        lines.append(f"it claims {claims} (fix: take what it does not serve out of its capabilities and methods)")
    if case is not None:
        lines.append(f"with {case!r}")
    needed = (name for need in sorted(check.needs) for name in need.split(" or ") if name in overrides)
    lines += [f"{name} is done by {overrides[name]}" for name in needed]
    if not always:
        lines.append("not every time: the same inputs passed when they were given again")
    return "\n".join(lines)


def _unwrapped(error: BaseException) -> tuple[BaseException, bool]:
    """What the check raised, and whether it did so again; Hypothesis wraps what it cannot repeat."""
    if not isinstance(error, FlakyFailure):
        return error, True
    return next((one for one in error.exceptions if isinstance(one, AssertionError)), error.exceptions[0]), False
