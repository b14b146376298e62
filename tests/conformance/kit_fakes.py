"""Checks that exist for one test of the kit itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from statehal.testing import Check


@dataclass(frozen=True)
class Number:
    """Inputs."""

    value: int

    @property
    def features(self) -> frozenset[str]:
        return frozenset({"even" if self.value % 2 == 0 else "odd"} | ({"negative"} if self.value < 0 else set()))


def fake(
    run: Callable[..., None] = lambda target, case: None,
    *,
    name: str = "fake/check",
    drawn: bool = True,
    **options: Any,
) -> Check:
    """A check whose inputs are numbers from 0 to 99; with ``drawn=False`` it has none."""
    cases = (lambda target: st.integers(0, 99).map(Number)) if drawn else None
    options = {key: frozenset(value) for key, value in options.items()}
    return Check(name, "Numbers are small.", run, cases, **options)


def small(target: Any, case: Number) -> None:
    """Fails with evidence."""
    assert case.value < 5, f"{case.value} is not"


def failing(target: Any, case: object = None) -> None:
    """Fails without inputs."""
    raise AssertionError("the evidence")


def passing(target: Any, case: object = None) -> None:
    """Passes."""
