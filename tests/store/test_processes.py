"""Many processes on one directory: writers of one block, evictors, pins and sweeps of the living and the dead."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from statehal.portability.store import FileStore, Reason, locks, temporaries
from statehal.portability.store.temporaries import Temporary
from store.programs import finish, run, said, start, tell
from store.scene import files, filled, items, payload, read, scene

MADE = scene(object_tokens=16, head_groups=1)
BLOCK = 2 * 4992

WRITER = """
import sys
from statehal.portability.store import FileStore
from store.scene import items, read, scene
made = scene(object_tokens=16, head_groups=1)
first, last, budget = map(int, sys.argv[2:])
store = FileStore(sys.argv[1], max_bytes=budget or None)
print("ready", flush=True)
sys.stdin.readline()
wrong = failed = 0
for round in range(3):
    for number in range(first, last):
        failed += not all(store.put(items(made.block(number))))
        wrong += not set(read(store, made.block(number))) <= {"right", "absent"}
print(wrong, failed, flush=True)
"""


def race(root: Path, ranges: list[tuple[int, int]], budget: int) -> list[list[str]]:
    """Start writers at once and return what each found."""
    programs = [start(WRITER, root, first, last, budget) for first, last in ranges]
    for program in programs:
        assert said(program) == "ready"
    for program in programs:
        tell(program)
    found = [said(program).split() for program in programs]
    for program in programs:
        finish(program)
    return found


def test_writers_of_the_same_blocks_leave_each_block_once_and_right(tmp_path: Path) -> None:
    assert race(tmp_path, [(0, 30)] * 3, 0) == [["0", "0"]] * 3
    refs = [ref for block in MADE.blocks(30) for ref in block]
    assert set(read(FileStore(tmp_path), refs)) == {"right"}
    assert len(files(tmp_path)) == len(refs)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_evictors_that_race_keep_the_budget_and_tear_nothing(tmp_path: Path) -> None:
    """Each deletes what another is reading and has just written; what is read is right or absent."""
    budget = 12 * BLOCK
    over, stop = [], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            held = sum(size_of(path) for path in [*files(tmp_path), *(tmp_path / "temporary").glob("*")])
            if held > budget + 4 * BLOCK:  # what is renamed while it is listed is seen twice
                over.append(held)

    watching = threading.Thread(target=watch)
    watching.start()
    found = race(tmp_path, [(0, 20), (10, 30), (20, 40)], budget)
    stop.set()
    watching.join()
    assert found == [["0", "0"]] * 3
    assert over == []
    assert sum(map(size_of, files(tmp_path))) <= budget
    every = [ref for block in MADE.blocks(40) for ref in block]
    assert set(read(FileStore(tmp_path), every)) <= {"right", "absent"}


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


PINNER = """
import sys
from statehal.portability.store import FileStore
from store.scene import scene
made = scene(object_tokens=16, head_groups=1)
store = FileStore(sys.argv[1])
assert all(store.pin([(made.namespace, made.block(0)[0].key)]))
print("pinned", flush=True)
sys.stdin.readline()
"""


def test_pins_hold_against_other_processes_and_go_with_a_dead_one(tmp_path: Path) -> None:
    store = filled(tmp_path, MADE, 2)
    pinner = start(PINNER, tmp_path)
    assert said(pinner) == "pinned"
    assert store.gc(0).pinned == 1
    assert set(read(store, MADE.block(0))) == {"right"}
    assert set(read(store, MADE.block(1))) == {"absent"}
    os.kill(pinner.pid, signal.SIGKILL)
    pinner.communicate()
    assert store.gc(0).used == 0


HOLDER = """
import os, sys, time
from pathlib import Path
from statehal.portability.store.temporaries import Temporary
temporary = Temporary(Path(sys.argv[1], "temporary"), 100)
print(Path(temporary.path).name, flush=True)
sys.stdin.readline()
temporary.rename(Path(sys.argv[1], "renamed"))
"""


def test_temporaries_of_the_living_stay_and_those_of_the_dead_go(tmp_path: Path) -> None:
    """By a lock, not by a process id: another process may have the id by now, or be in another container."""
    store = FileStore(tmp_path)
    living, dying = start(HOLDER, tmp_path), start(HOLDER, tmp_path)
    names = {said(living), said(dying)}
    assert all(f".{program.pid}." in "".join(names) for program in (living, dying))
    FileStore(tmp_path)
    assert {path.name for path in (tmp_path / "temporary").iterdir()} == names
    os.kill(dying.pid, signal.SIGKILL)
    dying.communicate()
    assert store.gc().swept == 1
    (left,) = (tmp_path / "temporary").iterdir()
    assert f".{living.pid}." in left.name
    tell(living)
    finish(living)
    assert (tmp_path / "renamed").stat().st_size == 100
    assert store.counts()["swept"] == {"temporaries": 1}


def test_a_sweep_between_the_making_and_the_locking_of_a_temporary_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = locks.lock_at_once
    swept: list[bool] = []

    def late(fd: int) -> bool:
        if not swept:
            swept.append(True)  # first, so that the sweep's own locks are plain
            assert temporaries.sweep(tmp_path) == 1
        return lock(fd)

    monkeypatch.setattr(temporaries, "lock_at_once", late)
    with Temporary(tmp_path, 10) as temporary:
        assert os.fstat(temporary.fd).st_nlink == 1
        assert Path(temporary.path).exists()


def test_a_reader_finishes_with_a_part_that_is_evicted_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, MADE, 1)
    preadv, other = os.preadv, FileStore(tmp_path)

    def evicting(fd: int, views: list[memoryview], offset: int) -> int:
        other.gc(0)
        return preadv(fd, views, offset)

    monkeypatch.setattr(os, "preadv", evicting)
    assert read(store, MADE.block(0)) == ["right", "absent"]


STOPPED = """
import sys
from pathlib import Path
from statehal.portability.store.locks import held
with held(Path(sys.argv[1], sys.argv[2]), 5):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("name", ["usage", "evicting.lock"])
def test_a_process_that_stands_still_with_a_lock_stops_nobody(tmp_path: Path, name: str) -> None:
    store = filled(tmp_path, MADE, 2)
    store.gc()
    holder = start(STOPPED, tmp_path, name)
    assert said(holder) == "held"
    waiting = FileStore(tmp_path, max_bytes=2 * BLOCK, wait_s=0.05)
    outcomes = waiting.put(items(MADE.block(5)))
    assert {one.reason for one in outcomes} == {Reason.BUSY}
    assert f"{name} has been locked by another process for 0.05 s" in outcomes[0].detail
    assert set(read(waiting, [*MADE.block(0), *MADE.block(1)])) == {"right"}
    assert all(waiting.delete(MADE.block(1)))
    finish(holder)
    assert all(waiting.put(items(MADE.block(5))))


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = FileStore(tmp_path, max_bytes=12 * BLOCK)
    wrong: list[object] = []

    def work(first: int) -> None:
        for number in range(first, first + 25):
            block = MADE.block(number % 40)
            key = [(MADE.namespace, block[0].key)]
            store.pin(key)
            stored = all(store.put(items(block)))
            found = set(read(store, block))
            if not stored or found != {"right"}:
                wrong.append((number, stored, found))
            store.unpin(key)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.counts()["put"] == {"done": 200}
    assert store.gc().used == sum(map(size_of, files(tmp_path))) <= 12 * BLOCK


READER = """
import json, sys
from statehal.portability import parts, Grouping
from statehal.portability.store import FileStore
from store.scene import read, scene
made = scene(object_tokens=16, head_groups=4)
store = FileStore(sys.argv[1])
world, rank = int(sys.argv[2]), int(sys.argv[3])
mine = [ref for ref in made.block(0) if ref.part.heads[0] == rank * 4 // world]
print(json.dumps([made.namespace.digest, len({one.nbytes for one in made.parts}), read(store, mine)]))
"""


def test_a_reader_with_a_larger_world_size_deletes_nothing(tmp_path: Path) -> None:
    """Eight ranks over four heads: one namespace, one size of parts, each rank reads what it shares."""
    made = scene(object_tokens=16, head_groups=4)
    filled(tmp_path, made, 1)
    before = {path: path.read_bytes() for path in files(tmp_path)}
    for rank in range(8):
        digest, sizes, found = json.loads(run(READER, tmp_path, 8, rank))
        assert (digest, sizes, found) == (made.namespace.digest, 1, ["right", "right"])
    assert before == {path: path.read_bytes() for path in files(tmp_path)}
    assert len(payload(made.block(0)[0])) == 1024
