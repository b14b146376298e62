"""The name that was probably meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question about the nearest known name; empty where none is near.

    >>> did_you_mean("referense", ["cpu", "reference"])
    "did you mean 'reference'?"
    """
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Sorted names in quotes, or ``none``."""
    return ", ".join(map(repr, sorted(names))) or "none"
