"""The name that was probably meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A question about the nearest known name; empty where none is near.

    Args:
        name: what was written.
        known: what could have been meant.
        cutoff: how near is near, from 0 to 1: of ``difflib``.

    Examples:
        >>> did_you_mean("referense", ["cpu", "reference"])
        "did you mean 'reference'?"
    """
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Sorted names in quotes, or ``none``."""
    return ", ".join(map(repr, sorted(names))) or "none"
