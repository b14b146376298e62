"""The pluggy project, its two markers, and the version of the contract."""

import pluggy

PROJECT = "statehal"
"""pluggy's project name."""

ENTRY_POINT_GROUP = "statehal.backends"
"""The entry-point group in which a distribution lists its plugins."""

CONTRACT = (0, 1)
"""Version of the contract, ``(major, minor)``: a plugin of the same major and no newer minor version is accepted."""

hookspec = pluggy.HookspecMarker(PROJECT)
"""Marks the declaration of a hook."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function or method as its answer to the hook of that name."""
