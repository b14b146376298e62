"""Which entry points are installed, before anything is imported."""

import importlib.metadata
import re
import traceback
from collections.abc import Iterable

from statehal.errors import PluginBroken
from statehal.hookspecs import ENTRY_POINT_GROUP
from statehal.registry.records import Conflict, EntryPointLike, Failure, Source


def installed() -> tuple[list[EntryPointLike], list[Failure]]:
    """Entry points of the group, and the distributions whose list of entry points cannot be read.

    One damaged list must not hide the others, so each distribution is read on its own.
    """
    found: list[EntryPointLike] = []
    failures = []
    for distribution in importlib.metadata.distributions():
        try:
            found.extend(distribution.entry_points.select(group=ENTRY_POINT_GROUP))
        except Exception as error:
            if ENTRY_POINT_GROUP in (distribution.read_text("entry_points.txt") or ""):
                failures.append(_unreadable(distribution, error))
    return found, failures


def _unreadable(distribution: importlib.metadata.Distribution, error: Exception) -> Failure:
    name = distribution.metadata["Name"] or "unnamed"
    return Failure(
        name=name,
        source=Source(name, distribution.version, "entry_points.txt"),
        error=PluginBroken,
        reason=f"its list of entry points cannot be read: {type(error).__name__}: {error}",
        fix=f"reinstall {name}",
        cause=error,
        traceback="".join(traceback.format_exception(error)),
    )


def source_of(point: EntryPointLike) -> Source:
    """Where an entry point comes from."""
    if point.dist is None:
        return Source("an unnamed distribution", "", point.value)
    return Source(point.dist.name, point.dist.version, point.value)


def claims(points: Iterable[EntryPointLike]) -> tuple[dict[str, EntryPointLike], dict[str, Conflict]]:
    """Sort entry points into names with one claimant and names with several.

    A distribution that is listed twice, as an editable install beside its metadata is, counts once: the first listing
    on the path, as Python's import does.
    """
    claimants: dict[str, dict[str, EntryPointLike]] = {}
    for point in points:
        key = _normalised(point.dist.name) if point.dist is not None else f"{point.value} of nobody"
        claimants.setdefault(point.name, {}).setdefault(key, point)
    single, conflicts = {}, {}
    for name, by_distribution in sorted(claimants.items()):
        ordered = [point for _, point in sorted(by_distribution.items())]
        if len(ordered) == 1:
            single[name] = ordered[0]
        else:
            conflicts[name] = Conflict(name, tuple(map(source_of, ordered)))
    return single, conflicts


def _normalised(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
