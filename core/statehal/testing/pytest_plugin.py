"""Options of the conformance kit: loaded into every run of pytest where statehal is installed, and so it is light."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Declare which backend is judged, where, and how thoroughly."""
    group = parser.getgroup("statehal", "conformance of a statehal backend (--pyargs statehal.testing)")
    group.addoption("--statehal-backend", metavar="NAME", help="the backend that statehal.testing judges")
    group.addoption("--statehal-device", metavar="D", help="the device it is judged on (default: cpu)")
    group.addoption(
        "--statehal-profile",
        choices=("dev", "ci", "thorough"),
        help="how much is drawn: dev 15 examples a check, ci 100, always the same, thorough 1000 (default: ci)",
    )
