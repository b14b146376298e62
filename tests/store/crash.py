"""Children that kill themselves at the n-th unit of work, and what the directory must hold afterwards.

Run as a program, so that children are forks of a small process with one thread: ``python -m store.crash FOLDER TRIALS
[FAULT]`` prints a line of JSON, or fails with what it found. A unit is a byte that is written; a call that changes the
directory counts as ``CALL_UNITS``: killed in its first half, it has not happened, in the second, it has.
"""

import json
import logging
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statehal.portability.store import FileStore
from statehal.portability.store.temporaries import Temporary
from store.scene import files, flipped, items, path_of, read, scene

CALL_UNITS = 256
CALLS = ("replace", "unlink", "ftruncate", "mkdir", "open", "utime", "fsync")
MADE = scene(object_tokens=4)
BEFORE, DURING = MADE.blocks(8)[:4], MADE.blocks(8)[4:]
HELD = 2 * 14_000
"""A budget of some blocks."""


class Bomb:
    """Counts the units of a process, and ends it within the one that is given; ``None`` counts only."""

    def __init__(self, at: int | None) -> None:
        self.left = at
        self.spent = 0
        self.kinds: Counter[str] = Counter()

    def spend(self, units: int, kind: str, act: Callable[[int], Any]) -> Any:
        """Do an action of that many units, or the part of it that comes before the end."""
        self.spent += units
        self.kinds[kind] += units
        if self.left is None:
            return act(units)
        self.left -= units
        if self.left >= 0:
            return act(units)
        act(units + self.left)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process lives on after SIGKILL")

    def arm(self) -> None:
        """Put this between the store and the system, for the rest of the process."""
        pwrite = os.pwrite

        def write(fd: int, data: Any, offset: int) -> Any:
            return self.spend(len(data), "bytes", lambda done: pwrite(fd, data[:done], offset))

        os.pwrite = write
        os.fsync = lambda fd: None  # a process that dies loses nothing of what it has written; only a machine does
        for name in CALLS:
            setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return call(*arguments, **named)
            return self.spend(CALL_UNITS, name, lambda done: 2 * done >= CALL_UNITS and call(*arguments, **named))

        return wrapped


def prepare(root: Path) -> None:
    """A directory that holds blocks, a corrupt part among them, and what a dead writer left."""
    store = FileStore(root)
    assert all(store.put(items([ref for block in BEFORE for ref in block])))
    store.gc()
    damaged = path_of(root, BEFORE[3][0])
    damaged.write_bytes(flipped(damaged.read_bytes(), 8 * damaged.stat().st_size - 1))
    (root / "temporary" / "dead.1.00").write_bytes(b"left")


def work(root: Path, max_bytes: int | None, told: Callable[[str], None]) -> None:
    """What a process does with the directory: sweep, miss and quarantine, store, replace, evict, delete, count."""
    store = FileStore(root, max_bytes=max_bytes, fsync=True)
    read(store, BEFORE[3])
    for block in (*DURING, BEFORE[3]):
        for ref, outcome in zip(block, store.put(items(block)), strict=True):
            if outcome:
                told(f"put {ref.key} {ref.part.id}")
    told(f"delete {BEFORE[2][0].key} {BEFORE[2][0].part.id}")
    store.delete(BEFORE[2][:1])
    store.gc()


def child(root: Path, at: int | None, max_bytes: int | None) -> tuple[int, list[str], dict[str, Any]]:
    """Fork, work, and return how the child ended, what it told before, and what it counted."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        bomb = Bomb(at)
        bomb.arm()
        with os.fdopen(writing, "w") as pipe:
            work(root, max_bytes, lambda text: print(text, file=pipe, flush=True))
            print(json.dumps({"units": bomb.spent, "kinds": bomb.kinds}), file=pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    status = os.waitpid(pid, 0)[1]
    counted = json.loads(lines.pop()) if lines and lines[-1].startswith("{") else {}
    return status, lines, counted


@dataclass(frozen=True)
class Situation:
    """What a process finds, and with which budget it works; ``fresh``: no directory at all."""

    max_bytes: int | None = None
    fresh: bool = False

    def begin(self, prepared: Path, root: Path) -> Path:
        """A directory for one trial."""
        shutil.rmtree(root, ignore_errors=True)
        if not self.fresh:
            shutil.copytree(prepared, root)
        return root


SITUATIONS = {"kept": Situation(), "budget": Situation(HELD), "fresh": Situation(fresh=True)}


def inspect(root: Path, told: list[str], situation: Situation) -> None:
    """What must hold of the directory after any death."""
    max_bytes = situation.max_bytes
    every = [ref for block in (*BEFORE, *DURING) for ref in block]
    store = FileStore(root, max_bytes=max_bytes)
    assert list((root / "temporary").iterdir()) == [], "a temporary of a dead process was left"
    found = dict(zip([f"{ref.key} {ref.part.id}" for ref in every], read(store, every), strict=True))
    damaged = f"{BEFORE[3][0].key} {BEFORE[3][0].part.id}"
    bad = {name: state for name, state in found.items() if state not in ("right", "absent")}
    assert bad.keys() <= {damaged}, f"parts read as {bad}"
    if max_bytes is None:
        stored = {line.removeprefix("put ") for line in told if line.startswith("put ")}
        lost = [name for name in stored if found[name] != "right"]
        deleted = f"{BEFORE[2][0].key} {BEFORE[2][0].part.id}"
        kept = [] if situation.fresh else [f"{ref.key} {ref.part.id}" for block in BEFORE for ref in block]
        lost += [name for name in kept if found[name] != "right" and name not in (damaged, deleted)]
        assert lost == [], f"stored, and gone: {lost}"
    done = store.gc()
    held = sum(path.stat().st_size for path in [*files(root), *root.glob("quarantine/*/*")])
    assert done.used == held, f"counted {done.used} bytes, and {held} are there"
    assert max_bytes is None or held <= max_bytes, f"{held} bytes are more than the budget of {max_bytes}"
    outcomes = FileStore(root).put(items(every))
    assert all(outcomes), f"storing does not go on: {[one for one in outcomes if not one]}"
    assert set(read(store, every)) == {"right"}


def copied(self: Temporary, path: str | Path) -> None:
    """A fault: a rename that is none, so that a reader may find half a part."""
    with Path(path).open("wb", buffering=0) as target:
        data = os.pread(self.fd, 1 << 20, 0)
        for start in range(0, len(data), 512):
            os.pwrite(target.fileno(), data[start : start + 512], start)


def main(folder: str, trials: int, fault: str = "") -> None:
    """Kill that many children, in each situation by turns, and look at what they left."""
    if fault == "copied":
        Temporary.rename = copied  # type: ignore[method-assign]
    prepared, root = Path(folder, "prepared"), Path(folder, "trial")
    prepare(prepared)
    logging.disable()
    report: dict[str, Any] = {"killed": 0}
    for name, situation in SITUATIONS.items():
        status, _, report[name] = child(situation.begin(prepared, root), None, situation.max_bytes)
        assert status == 0, f"{name}: without a bomb the child ended with {status}"
    draw = random.Random(20)
    for trial in range(trials):
        name = list(SITUATIONS)[trial % len(SITUATIONS)]
        situation, at = SITUATIONS[name], draw.randrange(report[name]["units"])
        status, told, _ = child(situation.begin(prepared, root), at, situation.max_bytes)
        report["killed"] += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        try:
            inspect(root, told, situation)
        except AssertionError as error:
            raise AssertionError(f"{name}, killed at unit {at} of {report[name]['units']}: {error}") from None
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
