"""The checks as tests of pytest: for the kit's own test module, and for an author's file."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from statehal.registry import Registry
from statehal.testing.checks import CHECKS
from statehal.testing.profiles import EXAMPLES, ProfileName
from statehal.testing.report import Result
from statehal.testing.runner import judge, nothing_applies, obstacle, stray_deviations
from statehal.testing.target import Target

THE_RUN = "the_run"
"""Id of the test that fails where the run as a whole proves nothing or a declared deviation matches no check."""


def conformance_tests(
    backend: str, device: str | None = None, *, profile: ProfileName | None = None, registry: Registry | None = None
) -> Callable[..., None]:
    """Make a test function with one case a check; give it a name that begins with ``test``.

    Args:
        backend: its entry point.
        device: the option ``--statehal-device`` by default, else the host.
        profile: how much is drawn; the option ``--statehal-profile`` by default, else ``"ci"``.
        registry: where the backend is found; the installed ones by default.
    """
    assert profile is None or profile in EXAMPLES, f"profile={profile!r}: expected one of {', '.join(EXAMPLES)}"

    @lru_cache
    def prepared(on: str) -> tuple[Target, str]:
        target = Target(backend, on, registry)
        return target, obstacle(target)

    @pytest.mark.parametrize("name", case_names())
    def test_conformance(name: str, pytestconfig: pytest.Config) -> None:
        target, nothing = prepared(device or pytestconfig.getoption("statehal_device", None) or "cpu")
        if name == THE_RUN:
            faults = [nothing] if nothing else [*stray_deviations(target), *nothing_applies(target, CHECKS.values())]
            if faults:
                pytest.fail("\n".join(faults), pytrace=False)
            return
        if nothing:
            pytest.skip(f"not run, see {THE_RUN}: {nothing}")
        given: Any = pytestconfig.getoption("statehal_profile", None)
        tell(judge(CHECKS[name], target, profile_name=profile or given or "ci"))

    return test_conformance


def case_names() -> list[str]:
    """The cases of such a function: every check, then the run as a whole."""
    return [*CHECKS, THE_RUN]


def tell(result: Result) -> None:
    """End a test as the result says."""
    if result.status == "failed":
        pytest.fail(result.message, pytrace=False)
    if result.status in ("skipped", "filtered"):
        pytest.skip(f"{result.status}: {result.reason}")
    if result.status == "xfailed":
        pytest.xfail(result.reason)
        pytest.fail(result.message, pytrace=False)  # under --runxfail, which makes pytest.xfail do nothing
