"""Values as text for a trace: tensors by dtype, shape, strides and device, never by value, wherever they are held."""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

_MAX_ITEMS = 8
_MAX_DEPTH = 6
_MAX_TEXT = 200
_PLAIN = (bool, int, float, complex, type(None), PurePath, range)
_TORCH_NAMES = frozenset({"dtype", "device", "layout", "memory_format"})


def describe(value: object) -> str:
    """Describe a value in one line, without a device sync, without reading a tensor, and without ever raising.

    An object whose text is not known to be free of tensor values is shown by its class and the tensors it holds: its
    own ``repr`` is never called.

    Examples:
        >>> describe({"layer": 3, "ids": range(2)})
        "{'layer': 3, 'ids': range(0, 2)}"
    """
    try:
        return _describe(value, _MAX_DEPTH, ())
    except Exception as error:
        # A traced program must not fail because an argument resists being described.
        return f"<{type(value).__qualname__}: not described, {type(error).__name__}>"


def is_tensor(value: object) -> bool:
    """Whether it is a torch tensor of any subclass; asks its class, so that no attribute hook of the value runs."""
    cls = type(value)
    return all(hasattr(cls, name) for name in ("dtype", "shape", "stride", "device"))


def _is_array(value: object) -> bool:
    cls = type(value)
    return hasattr(cls, "dtype") and hasattr(cls, "shape") and hasattr(cls, "strides")


def _tensor_text(tensor: Any) -> str:
    try:
        strides = str(tuple(tensor.stride()))
    except Exception:  # sparse and nested tensors have none
        strides = "none"
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"Tensor({dtype}, shape={tuple(tensor.shape)}, strides={strides}, device={tensor.device})"


def _describe(value: object, depth: int, parents: tuple[int, ...]) -> str:
    if is_tensor(value):
        return _tensor_text(value)
    if _is_array(value):
        array: Any = value
        return f"array({array.dtype}, shape={tuple(array.shape)}, strides={tuple(array.strides)})"
    plain = _plain_text(value)
    if plain is not None:
        return plain
    if id(value) in parents or not depth:
        return f"<{_class_name(value)} ...>"
    return _container_text(value, depth - 1, (*parents, id(value)))


def _plain_text(value: object) -> str | None:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, str):
        return str.__repr__(value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "...")
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{type(value).__name__}({len(value)} bytes)"
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType | type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, ModuleType):
        return value.__name__
    cls = type(value)
    if cls.__module__ == "torch" and cls.__name__ in _TORCH_NAMES:
        return str(value)
    return None


def _container_text(value: object, depth: int, parents: tuple[int, ...]) -> str:
    def inner(item: object) -> str:
        return _describe(item, depth, parents)

    if isinstance(value, Mapping) and not dataclasses.is_dataclass(value):
        return "{" + _join(f"{inner(key)}: {inner(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        fields: tuple[str, ...] | None = getattr(type(value), "_fields", None)
        if fields is not None:
            return f"{type(value).__name__}({_join(f'{n}={inner(v)}' for n, v in zip(fields, value, strict=True))})"
        return "(" + _join(map(inner, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + _join(map(inner, value)) + "]"
    if isinstance(value, Set):
        return "{" + _join(sorted(map(inner, value))) + "}"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}({_join(map(inner, value.args))})"
    if dataclasses.is_dataclass(value):
        shown = ((f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value) if f.repr)
        return f"{type(value).__name__}({_join(f'{name}={inner(item)}' for name, item in shown)})"
    held = _join(f"{name}={inner(item)}" for name, item in _attributes(value) if _holds_tensor(item))
    return f"<{_class_name(value)} {held}>" if held else f"<{_class_name(value)}>"


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """Attributes stored on the object itself; properties are not run."""
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _holds_tensor(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(is_tensor, value.values()))
    if isinstance(value, tuple | list):
        return any(map(is_tensor, value))
    return is_tensor(value)


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _join(parts: Iterable[str]) -> str:
    shown: list[str] = []
    for part in parts:
        if len(shown) == _MAX_ITEMS:
            shown.append("...")
            break
        shown.append(part)
    return ", ".join(shown)
