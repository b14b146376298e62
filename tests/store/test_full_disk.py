"""A disk that is full, a quota, and a directory that cannot be written: reported, and the caller goes on."""

import json
import os
from pathlib import Path

import pytest

from statehal.portability.store import FileStore, Reason
from store.programs import mounting, run
from store.scene import filled, items, read, scene

MOUNT = mounting()
mounts = pytest.mark.skipif(
    MOUNT is None, reason="a file system cannot be mounted here (fix: run as root, or permit user namespaces)"
)
MADE = scene(object_tokens=64)  # parts of 8 KiB
FULL = """
import json, os, sys
from pathlib import Path
from statehal.portability.store import FileStore
from store.scene import items, read, scene, files
root, fsync = Path(sys.argv[1]), sys.argv[2] == "fsync"
made = scene(object_tokens=64)
refs = [ref for block in made.blocks(16) for ref in block]
store = FileStore(root, fsync=fsync)
outcomes = [str(store.put(items([ref]))[0].reason) for ref in refs]
states = read(store, refs)
left = [entry.name for entry in (root / "temporary").iterdir()]
files(root)[0].unlink(), files(root)[0].unlink()
again = store.put(items([ref for ref, outcome in zip(refs, outcomes) if outcome == "full"][:1]))
print(json.dumps({"put": outcomes, "get": states, "left": left, "again": bool(again[0]),
                  "counts": store.counts()["put"]}))
"""


@mounts
@pytest.mark.parametrize("fsync", ["fsync", "no"])
def test_a_full_disk_loses_nothing_and_is_reported(tmp_path: Path, fsync: str) -> None:
    """On a tmpfs of 256 KiB, in a namespace of mounts of its own."""
    assert MOUNT is not None
    shell = f'mount -t tmpfs -o size=256k statehal-test "{tmp_path}" && exec "$@"'
    found = json.loads(run(FULL, tmp_path, fsync, prefix=[*MOUNT, "sh", "-c", shell, "sh"]))
    stored = found["put"].count("None")
    assert set(found["put"]) == {"None", "full"}
    assert 10 < stored < 32
    expected = {"None": "right", "full": "absent"}
    assert found["get"] == [expected[outcome] for outcome in found["put"]]
    assert found["left"] == []
    assert found["again"]
    assert found["counts"] == {"done": stored + 1, "full": 64 - stored}


LIMITED = """
import json, resource, sys
from statehal.portability.store import FileStore
from store.scene import items, read, scene
small, large = scene(object_tokens=4), scene(object_tokens=512)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
store = FileStore(sys.argv[1])
refs = [*small.block(0), *large.block(0), *small.block(1)]
outcomes = store.put(items(refs))
print(json.dumps([[str(one.reason) for one in outcomes], read(store, refs)]))
"""


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    """Where nothing can be mounted, this is the system's own refusal to write on."""
    put, got = json.loads(run(LIMITED, tmp_path))
    assert put == ["None"] * 4 + ["full"] * 4 + ["None"] * 4
    assert got == ["right"] * 4 + ["absent"] * 4 + ["right"] * 4
    assert list((tmp_path / "temporary").iterdir()) == []


READ_ONLY = """
import json, sys
from pathlib import Path
from statehal.errors import StoreError
from statehal.portability.store import FileStore
from store.scene import items, read, scene
made = scene(object_tokens=64)
store = FileStore(sys.argv[1], max_bytes=1)
refs = made.block(0)
key = (made.namespace, refs[0].key)
found = {
    "get": read(store, refs),
    "exists": [bool(one) for one in store.exists(refs)],
    "put": [str(one.reason) for one in store.put(items(made.block(9)))],
    "put again": [str(one.reason) for one in store.put(items(refs))],
    "delete": [str(one.reason) for one in store.delete(refs[:1])],
    "pin": [str(one.reason) for one in store.pin([key])],
}
try:
    store.gc()
except StoreError as error:
    found["gc"] = str(error)
print(json.dumps(found))
"""


@mounts
def test_a_directory_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    """On a read-only bind mount, which root cannot write either; a corrupt part stays where it is."""
    assert MOUNT is not None
    filled(tmp_path, MADE)
    damaged = sorted(tmp_path.glob("namespaces/*/*/*heads1of2*"))
    assert len(damaged) == 4
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shell = f'mount --bind "{tmp_path}" "{tmp_path}" && mount -o remount,bind,ro "{tmp_path}" && exec "$@"'
    found = json.loads(run(READ_ONLY, tmp_path, prefix=[*MOUNT, "sh", "-c", shell, "sh"]))
    assert found["get"] == ["right", "corrupt", "right", "corrupt"]
    assert found["exists"] == [True] * 4
    assert found["put"] == ["read_only"] * 4
    assert found["put again"] == ["None"] * 4
    assert found["delete"] == ["read_only"]
    assert found["pin"] == ["None"]
    assert "cannot be collected" in found["gc"]
    assert "Read-only file system" in found["gc"]
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@mounts
def test_an_empty_directory_that_cannot_be_written_is_an_empty_store(tmp_path: Path) -> None:
    assert MOUNT is not None
    shell = f'mount --bind "{tmp_path}" "{tmp_path}" && mount -o remount,bind,ro "{tmp_path}" && exec "$@"'
    found = json.loads(run(READ_ONLY, tmp_path, prefix=[*MOUNT, "sh", "-c", shell, "sh"]))
    assert found["get"] == ["absent"] * 4
    assert found["put"] == ["read_only"] * 4


def test_errors_of_the_system_are_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that fails while it is read, or written, at every call of the system that it can fail at."""
    store = filled(tmp_path, MADE, 1)
    refs = MADE.block(0)

    def fails(*arguments: object, **named: object) -> None:
        raise OSError(5, "Input/output error")

    for name in ("preadv", "fstat"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            assert read(store, refs) == ["failed"] * 4, name
    assert read(store, refs) == ["right"] * 4
    for number, name in enumerate(("pwrite", "ftruncate", "replace", "fsync")):
        block = MADE.block(10 + number)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            outcomes = FileStore(tmp_path, fsync=True).put(items(block))
        assert {one.reason for one in outcomes} == {Reason.FAILED}, name
        assert "Input/output error" in outcomes[0].detail
        assert list((tmp_path / "temporary").iterdir()) == []
        assert all(store.put(items(block)))
    assert store.gc().used == sum(path.stat().st_size for path in tmp_path.glob("namespaces/*/*/*.safetensors"))
