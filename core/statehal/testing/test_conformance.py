"""``pytest --pyargs statehal.testing --statehal-backend NAME``: a test a check.

Without the option there is one test, which fails in a run of nothing else, and is skipped among other tests.
"""

from functools import cache
from pathlib import Path

import pytest

from statehal.testing import conformance_tests
from statehal.testing.conformance import case_names

NO_BACKEND = "no_backend"
HOW = "no backend to judge (fix: pass --statehal-backend NAME and, for another device than cpu, --statehal-device D)"

judging = cache(conformance_tests)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the test its cases."""
    named = metafunc.config.getoption("statehal_backend", None)
    metafunc.parametrize("name", case_names() if named else [NO_BACKEND])


def test_conformance(name: str, request: pytest.FixtureRequest) -> None:
    """Judge the backend of the option."""
    if name == NO_BACKEND:
        here = Path(__file__).parent
        if all(here in item.path.parents for item in request.session.items):
            pytest.fail(HOW, pytrace=False)
        pytest.skip(HOW)
    judging(request.config.getoption("statehal_backend"))(name, request.config)
