"""Every kernel of the package, found without a list."""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from statehal.errors import StatehalError

OWN = "statehal_triton_ops.compile"


class Interpreted(StatehalError):
    """``TRITON_INTERPRET`` is set, so that kernels are interpreted and there is nothing to compile."""


def refuse_interpreter() -> None:
    """Raise ``Interpreted`` where this process interprets kernels."""
    import triton

    if triton.knobs.runtime.interpret:
        raise Interpreted(
            "kernels are interpreted in this process, so that nothing can be compiled: TRITON_INTERPRET is set "
            "(fix: unset TRITON_INTERPRET)"
        )


def name_of(kernel: Any) -> str:
    """A kernel's module and name, as tables show it: ``kv_write.store_kv``."""
    return f"{kernel.fn.__module__.rsplit('.', 1)[-1]}.{kernel.fn.__name__}"


def kernels(package: str = "statehal_triton_ops") -> dict[str, Any]:
    """Every ``@triton.jit`` function of a package that may be launched, by ``module.name``.

    One that returns a value cannot be launched: it is a helper. One that returns nothing is a helper where another jit
    function calls it and no host code names it; any doubt makes it a kernel, which then needs a row.
    """
    modules = [module for module in _modules(package) if not module.__name__.startswith(OWN)]
    jitted = {id(one): one for module in modules for one in _jitted(module)}
    on_device: set[str] = set()
    for function in jitted.values():
        on_device |= _names(_tree(function)) - {function.fn.__name__}
    on_host = {place for module in modules for place in _used_by_host(module, jitted)}
    found = {}
    for place, function in jitted.items():
        helper = function.fn.__name__ in on_device and place not in on_host
        if not helper and not _returns_value(_tree(function)):
            found[name_of(function)] = function
    return dict(sorted(found.items()))


def _modules(package: str) -> Iterator[ModuleType]:
    root = importlib.import_module(package)
    yield root
    for info in pkgutil.walk_packages(getattr(root, "__path__", ()), package + "."):
        if not info.name.startswith(OWN):
            yield importlib.import_module(info.name)


def _jitted(module: ModuleType) -> Iterator[Any]:
    from triton.runtime.jit import JITFunction

    for value in vars(module).values():
        if isinstance(value, JITFunction) and value.fn.__module__ == module.__name__:
            yield value


def _tree(function: Any) -> ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function.fn))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }


def _used_by_host(module: ModuleType, jitted: dict[int, Any]) -> set[int]:
    """Which jit functions a module names outside its own jit functions, be it as text; imports alone are no use.

    ``name`` is looked up in the module; of ``some.name`` and ``"name"`` only the name counts.
    """
    if module.__file__ is None:
        return set()
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    device = {function.fn.__name__ for function in _jitted(module)}
    used: set[int] = set()
    loose: set[str] = set()
    for part in tree.body:
        if isinstance(part, ast.FunctionDef) and part.name in device:
            continue
        for node in ast.walk(part):
            if isinstance(node, ast.Name):
                used.add(id(vars(module).get(node.id)))
            elif isinstance(node, ast.Attribute):
                loose.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                loose.add(node.value)
    return {place for place, function in jitted.items() if place in used or function.fn.__name__ in loose}


def _returns_value(tree: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(tree))
