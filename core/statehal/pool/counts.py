"""Counts given by a host: Python ints, or anything that is one by ``operator.index``."""

from operator import index

from statehal.errors import ArgumentError


def as_count(value: object, what: str, most: int | None = None) -> int:
    """``value`` as an int from 0 to ``most``; a bool is none.

    Raises:
        ArgumentError: ``what`` says of what it is the count.
    """
    try:
        count = -1 if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        count = -1
    if count < 0 or (most is not None and count > most):
        expected = "of at least 0" if most is None else f"from 0 to {most}"
        raise ArgumentError(f"{what} {value!r}: expected an integer {expected}")
    return count
