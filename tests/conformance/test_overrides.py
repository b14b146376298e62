"""A plugin that overrides a method is judged with the backend whose method it replaces, and named where it fails."""

from typing import Any

import pytest

import statehal.reference as reference
from conformance.mutant import MutantBackend
from plugin_fakes import discover
from statehal.hookspecs import hookimpl
from statehal.testing import CHECKS, Target, run

ZEROED = "memory_ops/zero_pages_zeroes_these_bytes_alone"


class ZeroPages:
    graph_capturable = True
    host_sync_free = True

    def __init__(self, value: int) -> None:
        self.value = value

    def zero_pages(self, views: Any, pages: Any) -> None:
        for view in views:
            view.index_fill_(1, pages, self.value)


class Site:
    """Overrides one method of any backend."""

    def __init__(self, value: int) -> None:
        self.value = value

    @hookimpl
    def statehal_memory_ops(self, request: Any) -> Any:
        return ZeroPages(self.value)


def overridden(backend: str, value: int) -> Target:
    """A backend, the reference's own methods under another name or the reference itself, with a site's override."""
    plugins = {"reference": reference, "mutant": MutantBackend(), "site": Site(value)}
    return Target(backend, "cpu", discover(plugins))


@pytest.mark.parametrize("backend", ["reference", "mutant"])
def test_an_override_is_judged_with_the_backend(backend: str) -> None:
    report = run(overridden(backend, 0), [CHECKS[ZEROED]], profile_name="dev")
    assert (report.ok, report.count()) == (True, {"passed": 1})
    assert report.overrides == {"memory.zero_pages": "site"}
    assert report.as_json()["overrides"] == {"memory.zero_pages": "site"}


@pytest.mark.parametrize("backend", ["reference", "mutant"])
def test_an_override_that_is_wrong_fails_and_is_named(backend: str) -> None:
    report = run(overridden(backend, 1), [CHECKS[ZEROED]], profile_name="dev")
    (failure,) = report.failures
    assert failure.by == "assertion"
    assert "\nmemory.zero_pages is done by site\n" in f"{failure.message}\n"


def test_a_failure_of_what_is_not_overridden_names_nobody() -> None:
    name = "memory_ops/copy_pages_reads_all_before_it_writes_any"
    broken = MutantBackend(memory=lambda made, request: Copies(made))
    target = Target("mutant", "cpu", discover({"reference": reference, "mutant": broken, "site": Site(0)}))
    (failure,) = run(target, [CHECKS[name]], profile_name="dev").failures
    assert "is done by" not in failure.message


class Copies:
    """The reference's operations, whose copies do nothing."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def copy_pages(self, *args: Any) -> None:
        pass
