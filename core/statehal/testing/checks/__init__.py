"""All checks, by topic: importing this registers them in the order in which they are run."""

from statehal.testing.check import REGISTERED
from statehal.testing.checks import kv_write

CHECKS = REGISTERED
"""Every check, by name."""

__all__ = ["CHECKS", "kv_write"]
