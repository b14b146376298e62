"""What mutants of KV writers are made with: parts of the reference's writer replaced by others."""

from collections.abc import Callable
from typing import Any

from conformance.mutant import MutantBackend
from statehal.reference.casts import as_scale
from statehal.reference.stored import stored_rows

Method = Callable[..., Any]


def method(name: str, change: Callable[[Any, Any, Method], Method]) -> Callable[[], MutantBackend]:
    """A backend in which one method is another.

    Args:
        change: of the writer, the request and the right method: the method with the fault.
    """

    def kv(made: Any, request: Any) -> Any:
        setattr(made, name, change(made, request, getattr(made, name)))
        return made

    return lambda: MutantBackend(kv=kv)


def writer(change: Callable[[Any, Any], object]) -> Callable[[], MutantBackend]:
    """A backend in which parts of the writer are others."""

    def kv(made: Any, request: Any) -> Any:
        change(made, request)
        return made

    return lambda: MutantBackend(kv=kv)


class Field:
    """A field, whose rows the reference encodes."""

    def __init__(self, field: Any) -> None:
        self._field = field

    def __getattr__(self, name: str) -> Any:
        return getattr(self._field, name)

    def encode(self, rows: Any, scale: Any) -> Any:
        return stored_rows(self._field, rows, scale)


def encode_with(made: Any, encode: Method, *names: str) -> None:
    """Let a writer encode rows of some fields, or of all, with ``encode(field, rows, scale)``."""
    right = made._rows

    def rows(name: str, rows: Any, scale: Any) -> Any:
        if names and name not in names:
            return right(name, rows, scale)
        by = None if scale is None else as_scale(scale, rows.device)
        return encode(Field(made._arguments.fields[name]), rows.detach(), by)

    made._rows = rows


def encoding(encode: Method, *names: str) -> Callable[[], MutantBackend]:
    """A backend whose writers are changed by ``encode_with``."""
    return writer(lambda made, request: encode_with(made, encode, *names))


class AnySpace:
    """Takes ids of any space."""

    def __init__(self, space: Any) -> None:
        self._count = len(space.key.forms)

    def accept(self, ids: Any, where: str) -> Any:
        tensors = getattr(ids, "tensors", None) or (ids,)
        return (tuple(tensors) * self._count)[: self._count]


class NamedSpace:
    """Takes ids whose space has the right name, be it of another pool or from before a compaction."""

    def __init__(self, space: Any) -> None:
        self._space = space

    def accept(self, ids: Any, where: str) -> Any:
        key = getattr(getattr(ids, "space", None), "key", None)
        if key is None or key._replace(pool="") != self._space.key._replace(pool=""):
            raise self._space.refusal(ids, where)
        return ids.tensors


class AnySubPool:
    """Takes kernel ids of tokens of any sub-pool of its pool."""

    def __init__(self, space: Any) -> None:
        self._space = space

    def accept(self, ids: Any, where: str) -> Any:
        key, own = getattr(getattr(ids, "space", None), "key", None), self._space.key
        if key is None or (key.pool, key.kind, key.unit) != (own.pool, own.kind, own.unit):
            raise self._space.refusal(ids, where)
        return (ids.tensors * len(own.forms))[: len(own.forms)]


def any_space(made: Any, request: Any) -> None:
    """Ids are not looked at."""
    made._arguments._space = AnySpace(made._arguments._space)


def full_ids_for_a_window(made: Any, request: Any) -> None:
    """A sliding-window layer takes full-attention ids; what is no window is guarded."""
    if request.subpool.spec.window is not None:
        made._arguments._space = AnySubPool(made._arguments._space)


def named_space(made: Any, request: Any) -> None:
    """Of ids only the name of their space is looked at."""
    made._arguments._space = NamedSpace(made._arguments._space)
