"""The checks of stores as tests of pytest, for an author's file."""

from collections.abc import Callable
from pathlib import Path

from statehal.errors import MissingDependency
from statehal.testing.stores.runner import CHECKS, run_check
from statehal.testing.stores.store_check import StoreTarget


def store_conformance_tests(make: Callable[[Path], StoreTarget]) -> Callable[..., None]:
    """Make a test function with one case a check; give it a name that begins with ``test``.

    Args:
        make: of an empty folder a target with nothing in it.

    Raises:
        MissingDependency: pytest is not installed.
    """
    try:
        import pytest
    except ModuleNotFoundError:
        raise MissingDependency(
            "these tests need pytest, which is not installed (fix: pip install 'statehal[testing]')"
        ) from None

    @pytest.mark.parametrize("name", CHECKS)
    def test_store(name: str, tmp_path: Path) -> None:
        result = run_check(CHECKS[name], make(tmp_path))
        if result.status == "failed":
            pytest.fail(result.message, pytrace=False)
        if result.status == "filtered":
            pytest.skip(f"filtered: {result.reason}")

    return test_store
