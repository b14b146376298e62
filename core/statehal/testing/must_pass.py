"""Checks that every backend of a contract version must pass: those that need no capability tag or flag, frozen by name.

Where one of several tags is enough, as for a write in whichever dtype a backend stores, that is no optional capability.
``python -m statehal.testing.must_pass`` adds the checks of today to the list of today's contract; it takes none away.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from statehal.binding.merge import FLAGS
from statehal.hookspecs import CAPABILITIES, CONTRACT
from statehal.testing.check import Check

FILE = Path(__file__).with_name("must_pass.json")
COMMAND = "python -m statehal.testing.must_pass"


def lists(file: Path = FILE) -> Mapping[str, list[str]]:
    """Names of checks by contract version, such as ``"0.1"``."""
    found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def current() -> str:
    """Today's contract version."""
    return ".".join(map(str, CONTRACT))


def untagged(checks: Iterable[Check]) -> set[str]:
    """Names of the checks that need no capability tag and no flag."""
    return {check.name for check in checks if not any(map(_optional, check.needs))}


def _optional(need: str) -> bool:
    return need in CAPABILITIES or any(one.endswith(FLAGS) for one in need.split(" or "))


def problems(checks: Iterable[Check], frozen: Mapping[str, list[str]]) -> list[str]:
    """What differs between the checks of today and the frozen lists, with what to do."""
    checks = list(checks)
    names, mine = {check.name for check in checks}, untagged(checks)
    found = [
        f"{name!r} must pass in contract {version} and is no check any more "
        f"(fix: bring it back; only a version that was never released may lose it, by hand in {FILE.name})"
        for version, listed in frozen.items()
        for name in listed
        if name not in names
    ]
    found += [
        f"{name!r} must pass in contract {current()} and needs a capability tag now (fix: make it a check of its own)"
        for name in frozen.get(current(), [])
        if name in names - mine
    ]
    new = sorted(mine - set(frozen.get(current(), [])))
    if new:
        found.append(f"{', '.join(new)}: not on the list of contract {current()} (fix: {COMMAND})")
    return found


def add(checks: Iterable[Check], file: Path = FILE) -> list[str]:
    """Add what is missing to the list of today's contract and return it."""
    frozen = dict(lists(file)) if file.exists() else {}
    before = frozen.get(current(), [])
    frozen[current()] = sorted({*before, *untagged(checks)})
    file.write_text(json.dumps(frozen, indent=2) + "\n", encoding="utf-8")
    return sorted(set(frozen[current()]) - set(before))


if __name__ == "__main__":
    from statehal.testing.checks import CHECKS

    sys.stdout.writelines(f"added {name}\n" for name in add(CHECKS.values()))
