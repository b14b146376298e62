"""Public names that are imported when first used, so that ``import statehal`` loads no torch."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the module functions ``__getattr__`` and ``__dir__`` of PEP 562.

    ``names`` maps each public name to the module that holds it, relative to ``package``.
    """

    def module_getattr(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(names[name], package), name)

    def module_dir() -> list[str]:
        return sorted(names)

    return module_getattr, module_dir
