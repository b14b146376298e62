"""All checks, a module a topic: importing this package registers them, topic by topic in the order of their names."""

from importlib import import_module
from pkgutil import iter_modules

from statehal.testing.check import REGISTERED

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

CHECKS = REGISTERED
"""Every check, by name."""

__all__ = ["CHECKS"]
