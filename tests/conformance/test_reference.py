"""The reference passes every check, in the profile of continuous integration, and claims all tags but ``ids64``."""

import pytest

from statehal.hookspecs import IDS64
from statehal.testing import CHECKS, Check, Target, run_check


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.name)
def test_the_reference_passes(check: Check) -> None:
    target = Target("reference")
    assert set(target.missing(check.needs)) <= {IDS64}
    result = run_check(check, target)
    assert result.status == "passed", result.message
