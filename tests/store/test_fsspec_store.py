"""What may go wrong on a file system of fsspec: an outcome each time, within a time, and nothing of anybody's lost."""

import errno
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from fsspec.implementations.memory import MemoryFileSystem

from statehal.errors import ArgumentError, MissingDependency
from statehal.portability.store import FileStore, FsspecStore, PartRef
from statehal.portability.store.directory import MARKER
from store.object_servers import s3_filesystem, s3_server
from store.programs import run
from store.scene import flipped, items, parse, payload, read, rewritten, scene
from store.waiting import until, wait_until

pytestmark = pytest.mark.xdist_group("object-servers")
MADE = scene()


class Faulty(MemoryFileSystem):  # type: ignore[misc]
    """Objects of its own in memory; a method that is named in ``faults`` calls that first, with the path."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.faults: dict[str, Callable[[str], None]] = {}
        self.calls: list[tuple[str, str]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("info", "cat_file", "pipe_file", "rm_file", "cp_file", "mv", "makedirs"):
            return found

        def asked(path: str, *arguments: Any, **named: Any) -> Any:
            self.calls.append((name, path))
            if name in self.faults:
                self.faults[name](path)
            return found(path, *arguments, **named)

        return asked


def raising(error: BaseException) -> Callable[[str], None]:
    def fault(path: str) -> None:
        raise error

    return fault


def opened(**options: Any) -> tuple[FsspecStore, Faulty]:
    filesystem = Faulty()
    return FsspecStore("/prefix", filesystem=filesystem, **options), filesystem


def name_of(ref: PartRef) -> str:
    return f"/prefix/namespaces/{ref.namespace.digest}/{ref.key[:2]}/{ref.key}.{ref.part.id}.safetensors"


REFUSED = [
    (TimeoutError("took too long"), "failed", "failed"),
    (ConnectionResetError(errno.ECONNRESET, "reset"), "failed", "failed"),
    (PermissionError(errno.EACCES, "Access Denied"), "failed", "read_only"),
    (OSError(errno.EROFS, "read-only"), "failed", "read_only"),
    (OSError(errno.ENOSPC, "no space"), "full", "full"),
    (OSError(errno.EIO, "broken"), "failed", "failed"),
    (EndpointConnectionError(endpoint_url="http://s3"), "failed", "failed"),
    (RuntimeError("a class of its own"), "failed", "failed"),
]


@pytest.mark.parametrize(("error", "reading", "writing"), REFUSED, ids=str)
def test_errors_of_the_file_system_are_outcomes(error: Exception, reading: str, writing: str) -> None:
    """Of every method, at every request that it makes; and all is well once the file system is."""
    store, filesystem = opened()
    refs, others = MADE.block(0), MADE.block(1)
    assert all(store.put(items(refs)))
    filesystem.faults = {"cat_file": raising(error)}
    assert read(store, refs) == [reading] * 4
    (outcome,) = store.get([(refs[0], bytearray(refs[0].part.nbytes))])
    assert outcome.detail == f"{type(error).__name__}: {error}"
    filesystem.faults = {"info": raising(error)}
    assert {str(one.reason) for one in store.exists(refs)} == {reading}
    assert {str(one.reason) for one in store.delete(refs)} == {writing}
    assert {str(one.reason) for one in store.put(items(others))} == {writing}
    filesystem.faults = {"pipe_file": raising(error)}
    assert {str(one.reason) for one in store.put(items(others))} == {writing}
    filesystem.faults = {"rm_file": raising(error)}
    assert {str(one.reason) for one in store.delete(refs)} == {writing}
    filesystem.faults = {}
    assert read(store, refs + others) == ["right"] * 4 + ["absent"] * 4
    assert all(store.put(items(others)))
    assert read(store, others) == ["right"] * 4


def test_one_part_that_fails_is_none_of_the_others_business() -> None:
    store, filesystem = opened(concurrency=2)
    refs = [ref for block in MADE.blocks(4) for ref in block]

    def fault(path: str) -> None:
        if path == name_of(refs[5]):
            raise OSError(errno.EIO, "broken")

    filesystem.faults = {"pipe_file": fault}
    assert [str(one.reason) for one in store.put(items(refs))] == ["None"] * 5 + ["failed"] + ["None"] * 10
    assert read(store, refs) == ["right"] * 5 + ["absent"] + ["right"] * 10
    assert store.counts()["put"] == {"done": 15, "failed": 1}


def test_a_bucket_that_is_not_there_holds_nothing_and_takes_nothing() -> None:
    store, filesystem = opened()
    filesystem.faults = {"pipe_file": raising(FileNotFoundError("no such bucket"))}
    (outcome,) = store.put(items(MADE.block(0)[:1]))
    assert str(outcome.reason) == "failed"
    assert outcome.detail == "FileNotFoundError: no such bucket"
    assert read(store, MADE.block(0)) == ["absent"] * 4


def test_requests_that_hang_are_outcomes_in_time_and_touch_no_buffer_afterwards() -> None:
    patient, filesystem = opened()
    refs = MADE.block(0)
    assert all(patient.put(items(refs)))
    store = FsspecStore("/prefix", filesystem=filesystem, concurrency=2, wait_s=0.3)
    go_on, hanging = threading.Event(), threading.Semaphore(0)

    def hang(path: str) -> None:
        hanging.release()
        go_on.wait(30)

    filesystem.faults = {"cat_file": hang}
    buffers = [(ref, bytearray(b"\xa5" * ref.part.nbytes)) for ref in refs]
    started = time.monotonic()
    outcomes = store.get(buffers)
    assert time.monotonic() - started < 20, "it was waited for what hangs"
    assert [str(one.reason) for one in outcomes] == ["failed", "failed", "busy", "busy"]
    assert outcomes[0].detail == "Unanswered: no answer in 0.3 s"
    go_on.set()
    filesystem.faults = {}
    assert wait_until(lambda: read(store, refs) == ["right"] * 4), "the store does not come back"
    assert all(buffer == b"\xa5" * len(buffer) for _, buffer in buffers), "a late answer was written"


def test_a_put_that_hangs_has_a_copy_of_its_payload() -> None:
    store, filesystem = opened(wait_s=2.0)
    ref = MADE.block(0)[0]
    go_on = threading.Event()
    filesystem.faults = {"pipe_file": lambda path: None if path.endswith(".json") else until(go_on)}
    buffer = bytearray(payload(ref))
    (outcome,) = store.put([(ref, buffer)])
    assert str(outcome.reason) == "failed"
    buffer[:] = bytes(len(buffer))
    go_on.set()
    assert wait_until(lambda: read(store, [ref]) != ["absent"])
    assert wait_until(lambda: read(store, [ref]) == ["right"], 5.0), "what was stored late is not what was given"


def test_what_does_not_fit_is_copied_aside_before_it_is_replaced() -> None:
    store, filesystem = opened()
    refs = MADE.block(0)
    other = scene(model="other").block(0)[0]
    assert all(store.put([*items(refs), (other, payload(other))]))
    stranger = filesystem.cat_file(name_of(other))
    filesystem.pipe_file(name_of(refs[0]), stranger)
    aside = name_of(refs[0]).replace("namespaces", "quarantine").replace(f"/{refs[0].key[:2]}/", "/")
    filesystem.faults = {"cp_file": raising(OSError(errno.EIO, "broken"))}
    assert [str(one.reason) for one in store.put(items(refs[:1]))] == ["misplaced"]
    assert filesystem.cat_file(name_of(refs[0])) == stranger, "somebody's part is gone, and nowhere else"
    filesystem.faults = {}
    assert all(store.put(items(refs[:1])))
    assert filesystem.cat_file(aside) == stranger
    assert read(store, refs) == ["right"] * 4


def test_a_part_that_proved_corrupt_is_replaced_by_who_saw_it_and_stays_until_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, filesystem = opened()
    (ref, *_) = MADE.block(0)
    assert all(store.put(items([ref])))
    data = flipped(filesystem.cat_file(name_of(ref)), -1)
    filesystem.pipe_file(name_of(ref), data)
    with caplog.at_level(logging.WARNING, "statehal"):
        assert read(store, [ref]) == ["corrupt"]
    assert "it stays until it is stored again" in caplog.text
    assert filesystem.cat_file(name_of(ref)) == data, "a reader changed what is stored"
    filesystem.faults = {"cp_file": raising(OSError(errno.EIO, "broken"))}  # a copy of it is not worth a failure
    assert all(store.put(items([ref])))
    assert read(store, [ref]) == ["right"]
    filesystem.calls.clear()
    assert all(store.put(items([ref])))
    assert "pipe_file" not in {name for name, _ in filesystem.calls}, "it is still taken for corrupt"


def test_what_another_writer_has_put_right_is_not_replaced() -> None:
    store, filesystem = opened()
    (ref, *_) = MADE.block(0)
    assert all(store.put(items([ref])))
    right = filesystem.cat_file(name_of(ref))
    filesystem.pipe_file(name_of(ref), flipped(right, -1))
    assert read(store, [ref]) == ["corrupt"]
    filesystem.pipe_file(name_of(ref), right)
    assert read(store, [ref]) == ["right"]
    filesystem.calls.clear()
    assert all(store.put(items([ref])))
    assert not {"pipe_file", "cp_file"} & {name for name, _ in filesystem.calls}


@pytest.mark.parametrize("pad", [0, 1, 700])
def test_other_writers_may_order_and_pad_the_header_as_they_like(pad: int) -> None:
    store, filesystem = opened()
    (ref, *_) = MADE.block(0)
    assert all(store.put(items([ref])))
    filesystem.pipe_file(name_of(ref), rewritten(filesystem.cat_file(name_of(ref)), pad=pad, reverse=True))
    assert read(store, [ref]) == ["right"]
    assert all(store.exists([ref]))


def test_an_object_that_is_huge_is_a_miss_and_is_not_fetched_whole() -> None:
    store, filesystem = opened()
    (ref, *_) = MADE.block(0)
    assert all(store.put(items([ref])))
    filesystem.pipe_file(name_of(ref), b"\xff" * (64 << 20))
    fetched: list[int] = []
    plain = MemoryFileSystem.cat_file

    def cat_file(self: Any, path: str, start: int | None = None, end: int | None = None, **named: Any) -> bytes:
        data: bytes = plain(self, path, start, end, **named)
        fetched.append(len(data))
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Faulty, "cat_file", cat_file)
        assert read(store, [ref]) == ["corrupt"]
    assert sum(fetched) < 1 << 20


def test_a_copy_of_the_objects_opens_as_a_directory(tmp_path: Path) -> None:
    store = FsspecStore(f"file://{tmp_path}/objects")
    refs = [ref for block in MADE.blocks(2) for ref in block]
    assert all(store.put(items(refs)))
    assert not list((tmp_path / "objects/temporary").iterdir())
    (tmp_path / "objects" / MARKER).write_text('{"format": 1}')
    assert read(FileStore(tmp_path / "objects"), refs) == ["right"] * 8
    metadata, _, body = parse(next((tmp_path / "objects").glob("namespaces/*/*/*.safetensors")).read_bytes())
    assert metadata["namespace"] == MADE.namespace.digest
    assert len(body) == int(metadata["payload_bytes"])
    described = tmp_path / "objects/namespaces" / MADE.namespace.digest / "namespace.json"
    assert described.read_bytes() == MADE.namespace.encoded


@pytest.mark.parametrize("method", ["pipe_file", "mv"])
def test_where_puts_are_not_whole_nobody_sees_half_a_part(method: str) -> None:
    store, filesystem = opened(whole_puts=False)
    refs = MADE.block(0)
    filesystem.faults = {method: raising(OSError(errno.EIO, "broken"))}
    assert {str(one.reason) for one in store.put(items(refs))} == {"failed"}
    assert filesystem.find("/prefix") == [], "what was written aside is left"
    filesystem.faults = {}
    filesystem.calls.clear()
    assert all(store.put(items(refs)))
    assert {path for name, path in filesystem.calls if name == "pipe_file" and "/temporary/" not in path} == set()
    assert read(store, refs) == ["right"] * 4


FORKS = """
import os
from statehal.portability.store import FsspecStore
from store.scene import items, read, scene
refs, store = scene().block(0), FsspecStore("memory://forks")
assert all(store.put(items(refs)))
child = os.fork()
if not child:
    for outcome in [*store.put(items(scene().block(1))), *store.exists(refs)]:
        print(outcome.reason, outcome.detail, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(read(store, refs) == ["right"] * 4)
"""


def test_in_a_forked_process_a_store_says_what_to_do_and_waits_for_nothing() -> None:
    text = "failed Forked: the store was opened before a fork (fix: open it in this process)"
    assert run(FORKS).splitlines() == [text] * 8 + ["True"]


def test_arguments_that_no_store_could_serve_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"concurrency=0: expected at least 1"):
        FsspecStore("memory://x", concurrency=0)
    with pytest.raises(
        ArgumentError, match=r"fsspec cannot open 'nosuch://x': .*\(fix: a URL of fsspec, such as s3://"
    ):
        FsspecStore("nosuch://x")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingDependency, match=r"needs fsspec, which is not installed \(fix: pip install 'statehal"):
        FsspecStore("memory://x")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as found:
        yield found


def test_a_bucket_of_s3_that_is_not_there(endpoint: str) -> None:
    store = FsspecStore("nowhere/prefix", filesystem=s3_filesystem(endpoint))
    refs = MADE.block(0)
    assert read(store, refs) == ["absent"] * 4
    outcomes = store.put(items(refs[:1]))
    assert str(outcomes[0].reason) == "failed"
    assert "bucket does not exist" in outcomes[0].detail


def test_an_s3_by_its_url_and_options(endpoint: str) -> None:
    s3_filesystem(endpoint).mkdir("by-url")
    options = {"key": "test", "secret": "test", "endpoint_url": endpoint}
    store = FsspecStore("s3://by-url/prefix", storage_options=options)
    refs = MADE.block(0)
    assert all(store.put(items(refs)))
    assert read(FsspecStore("s3://by-url/prefix", storage_options=options), refs) == ["right"] * 4
    assert store._objects._fs is not FsspecStore("s3://by-url/prefix", storage_options=options)._objects._fs


def test_an_s3_that_goes_away_fails_in_time(endpoint: str) -> None:
    with s3_server() as short_lived:
        filesystem = s3_filesystem(short_lived)
        filesystem.mkdir("bucket")
        refs = [ref for block in MADE.blocks(30) for ref in block]
        assert all(FsspecStore("bucket/prefix", filesystem=filesystem).put(items(refs[:4])))
        store = FsspecStore("bucket/prefix", filesystem=filesystem, wait_s=1.0)
    started = time.monotonic()
    assert set(read(store, refs)) <= {"failed", "busy"}
    assert {str(one.reason) for one in store.put(items(refs))} <= {"failed", "busy"}
    assert time.monotonic() - started < 30
