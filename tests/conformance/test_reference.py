"""The reference passes every check, in the profile of continuous integration."""

import pytest

from statehal.testing import CHECKS, Check, Target
from statehal.testing.runner import judge


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.name)
def test_the_reference_passes(check: Check) -> None:
    result = judge(check, Target("reference"))
    assert result.status == "passed", result.message or result.reason
