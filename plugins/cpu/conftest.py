"""Where the extension is not built nothing here is collected: ``make test`` says so, and CI requires it."""

from importlib.util import find_spec

BUILT = find_spec("statehal_cpu") is not None and find_spec("statehal_cpu._native") is not None

collect_ignore = [] if BUILT else ["src", "tests"]
