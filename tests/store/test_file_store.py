"""What a store in a directory promises, one process at a time; what several do is in test_processes.py."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from statehal.errors import ArgumentError, StoreError
from statehal.portability.store import FileStore, PartRef, Reason, part_file, present
from store.scene import buffers, files, filled, flipped, items, path_of, payload, read, scene

MADE = scene()
REFS = [ref for block in MADE.blocks(2) for ref in block]


def test_parts_come_back_as_they_were_stored(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert [one.reason for one in store.exists(REFS)] == [Reason.ABSENT] * 8
    assert read(store, REFS) == ["absent"] * 8
    assert all(store.put(items(REFS)))
    assert all(store.exists(REFS))
    assert read(FileStore(tmp_path), REFS) == ["right"] * 8
    assert all(store.delete(REFS[:1]))
    assert [one.reason for one in store.delete(REFS[:1])] == [Reason.ABSENT]
    assert read(store, REFS) == ["absent"] + ["right"] * 7
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "namespaces", "pins.lock", "statehal-store.json", "temporary", "usage",
    ]  # fmt: skip


def test_a_block_is_there_when_its_parts_are(tmp_path: Path) -> None:
    store = filled(tmp_path, MADE)
    assert [bool(one) for one in present(store, MADE.blocks(3))] == [True, True, False]
    store.delete([MADE.block(1)[2]])
    found = present(store, [MADE.block(0), MADE.block(1), MADE.block(1)[:2], []])
    assert [bool(one) for one in found] == [True, False, True, True]
    assert found[1].reason is Reason.ABSENT


@pytest.mark.parametrize("kind", ["bytearray", "memoryview", "tensor", "part of a tensor", "bfloat16 tensor"])
def test_payloads_go_straight_into_memory_of_any_kind(tmp_path: Path, kind: str) -> None:
    store, ref = filled(tmp_path, MADE), REFS[0]
    size = ref.part.nbytes
    whole = torch.full((size + 64,), 7, dtype=torch.uint8)
    memory: Any = {
        "bytearray": bytearray(size),
        "memoryview": memoryview(bytearray(size + 64))[64:],
        "tensor": torch.empty(size, dtype=torch.uint8),
        "part of a tensor": whole[64:],
        "bfloat16 tensor": torch.empty(4, size // 8, dtype=torch.bfloat16),
    }[kind]
    assert all(store.get([(ref, memory)]))
    if isinstance(memory, torch.Tensor):
        assert bytes(memory.view(torch.uint8).flatten().tolist()) == payload(ref)
        assert whole[:64].eq(7).all()
        other = FileStore(tmp_path / "other")
        assert all(other.put([(ref, memory)]))
        assert read(other, [ref]) == ["right"]
    else:
        assert bytes(memory) == payload(ref)


BAD = {
    "short": (bytearray(5), "has 5 bytes: expected 1,024, the part's payload"),
    "read-only": (bytes(1024), "is read-only"),
    "no memory": (7, "is no contiguous memory"),
    "strided": (memoryview(bytearray(2048))[::2], "is no contiguous memory"),
    "strided tensor": (torch.empty(2048, dtype=torch.uint8)[::2], "expected a contiguous one on the host"),
    "no host": (torch.empty(1024, dtype=torch.uint8, device="meta"), "is a tensor on meta"),
}


@pytest.mark.parametrize(("buffer", "message"), BAD.values(), ids=BAD)
def test_a_buffer_that_does_not_fit_is_refused_before_anything_is_done(
    tmp_path: Path, buffer: object, message: str
) -> None:
    store = filled(tmp_path, MADE)
    first = bytearray(b"\xa5" * 1024)
    with pytest.raises(ArgumentError, match=message):
        store.get([(REFS[0], first), (REFS[1], buffer)])  # type: ignore[list-item]
    assert first == b"\xa5" * 1024
    if message != "is read-only":
        with pytest.raises(ArgumentError, match=message):
            store.put([(MADE.block(7)[0], payload(REFS[0])), (REFS[1], buffer)])  # type: ignore[list-item]
        assert not any(store.exists(MADE.block(7)))


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    calls: list[Callable[[], object]] = [
        lambda: store.exists([PartRef(MADE.namespace, "../../x", MADE.parts[0])]),
        lambda: store.pin([(MADE.namespace, "../../x")]),
        lambda: store.unpin([(MADE.namespace, "../../x")]),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=r"'\.\./\.\./x' is no key"):
            call()


def test_a_part_renamed_to_another_block_is_a_miss_and_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path, MADE)
    here, there = MADE.block(0)[1], MADE.block(1)[1]
    data = path_of(tmp_path, here).read_bytes()
    path_of(tmp_path, here).replace(path_of(tmp_path, there))
    assert read(store, [here, there]) == ["absent", "misplaced"]
    assert f"key is '{here.key}': expected '{there.key}'" in caplog.text
    assert path_of(tmp_path, there).read_bytes() == data
    # who stores the block again gets room; what lay there is put aside
    assert all(store.put(items([here, there])))
    assert read(store, [here, there]) == ["right", "right"]
    assert (tmp_path / "quarantine" / here.namespace.digest / path_of(tmp_path, there).name).read_bytes() == data


def test_a_zero_byte_part_is_a_miss_of_one_item(tmp_path: Path) -> None:
    store = filled(tmp_path, MADE)
    path_of(tmp_path, REFS[3]).write_bytes(b"")
    assert read(store, REFS) == ["right"] * 3 + ["corrupt"] + ["right"] * 4
    assert store.counts()["quarantined"] == {"parts": 1}


def test_what_was_put_back_meanwhile_is_not_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that found a corrupt file, and another process that stored the part again before it moved it."""
    store, ref = filled(tmp_path, MADE), REFS[0]
    path = path_of(tmp_path, ref)
    right = path.read_bytes()
    path.write_bytes(flipped(right, 8 * len(right) - 1))
    take = store._quarantine.take

    def late(*arguments: object) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(right)
        fresh.replace(path)
        take(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store._quarantine, "take", late)
    assert read(store, [ref]) == ["corrupt"]
    assert path.read_bytes() == right
    assert read(FileStore(tmp_path), [ref]) == ["right"]


def test_what_is_in_the_way_may_be_removed_by_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By an eviction, between the look at it and its move to quarantine: then nothing is in the way."""
    store, ref = filled(tmp_path, MADE), REFS[0]
    path, look, looks = path_of(tmp_path, ref), part_file.look, []

    def gone(*arguments: Any, **named: Any) -> Any:
        looks.append(look(*arguments, **named))
        if len(looks) == 2:  # just before the rename
            path.unlink()
        return looks[-1]

    path_of(tmp_path, REFS[1]).replace(path)
    with monkeypatch.context() as patch:
        patch.setattr(part_file, "look", gone)
        assert all(store.put(items([ref])))
    assert [one.reason for one in looks] == [Reason.MISPLACED] * 2
    assert read(store, [ref]) == ["right"]
    path.write_bytes(b"")
    take = store._quarantine.take

    def late(*arguments: object) -> None:
        path.unlink()
        take(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store._quarantine, "take", late)
    assert read(store, [ref]) == ["corrupt"]
    assert "cannot be moved" not in caplog.text
    assert "quarantined" not in store.counts()


def test_names_that_are_no_files_are_misses(tmp_path: Path) -> None:
    store = filled(tmp_path, MADE)
    folder, pipe, loop = (path_of(tmp_path, ref) for ref in REFS[:3])
    for path in (folder, pipe, loop):
        path.unlink()
    folder.mkdir()
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    assert read(store, REFS[:4]) == ["failed", "failed", "failed", "right"]
    assert not any(store.exists(REFS[:1]))
    outcomes = store.put(items(REFS[:4]))
    assert [str(one.reason) for one in outcomes] == ["failed", "failed", "failed", "None"]


def test_a_directory_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, MADE)
    (tmp_path / "statehal-store.json").write_text('{"format": 2}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    store = FileStore(tmp_path, max_bytes=0)
    assert {one.reason for one in store.exists(REFS)} == {Reason.NEWER_FORMAT}
    assert set(read(store, REFS)) == {"newer_format"}
    assert {one.reason for one in store.put(items(MADE.block(3)))} == {Reason.NEWER_FORMAT}
    assert {one.reason for one in store.delete(REFS)} == {Reason.NEWER_FORMAT}
    assert {one.reason for one in store.pin([(MADE.namespace, REFS[0].key)])} == {Reason.NEWER_FORMAT}
    with pytest.raises(StoreError, match=r"has format 2 \(fix: update statehal\)"):
        store.gc()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_part_of_a_later_version_is_not_replaced(tmp_path: Path) -> None:
    store, ref = filled(tmp_path, MADE), REFS[0]
    path = path_of(tmp_path, ref)
    later = path.read_bytes().replace(b'"format_version":"1"', b'"format_version":"7"')
    path.write_bytes(later)
    assert read(store, [ref]) == ["newer_format"]
    assert [one.reason for one in store.put(items([ref]))] == [Reason.NEWER_FORMAT]
    assert path.read_bytes() == later


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(
        StoreError, match=r"is not a store: it holds 'thesis.txt' and no statehal-store.json \(fix: name"
    ):
        FileStore(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(StoreError, match=r"cannot be used as a store: File exists \(fix: name another\)"):
        FileStore(tmp_path / "thesis.txt")
    with pytest.raises(StoreError, match=r"cannot be used as a store: No such file or directory"):
        FileStore(tmp_path / "missing", create=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"is not a store: it has no statehal-store.json"):
        FileStore(tmp_path / "empty", create=False)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "1"}', '{"format": 0}', '{"format": true}', "[" * 4000])
def test_a_damaged_marker_is_an_error_that_says_how_to_mend_it(tmp_path: Path, text: str) -> None:
    filled(tmp_path, MADE)
    (tmp_path / "statehal-store.json").write_text(text)
    with pytest.raises(StoreError, match=r'is damaged: expected {"format": 1} \(fix: write that'):
        FileStore(tmp_path)


def test_the_directory_says_what_its_namespaces_are(tmp_path: Path) -> None:
    filled(tmp_path, MADE)
    found = tmp_path / "namespaces" / MADE.namespace.digest / "namespace.json"
    assert found.read_bytes() == MADE.namespace.encoded
    assert json.loads(found.read_bytes())["model"] == "tiny"


def test_a_store_goes_on_when_its_directory_is_emptied(tmp_path: Path) -> None:
    """An operator removes everything while an engine runs."""
    store = filled(tmp_path, MADE)
    for name in ("namespaces", "temporary"):
        (tmp_path / name).rename(tmp_path.parent / f"{tmp_path.name}-{name}")
    assert read(store, REFS) == ["absent"] * 8
    assert all(store.put(items(REFS)))
    assert read(store, REFS) == ["right"] * 8
    assert (tmp_path / "namespaces" / MADE.namespace.digest / "namespace.json").exists()


def test_a_store_whose_file_system_is_gone_is_not_made_anew_in_its_place(tmp_path: Path) -> None:
    store = filled(tmp_path / "mounted", MADE)
    (tmp_path / "mounted").rename(tmp_path / "gone")
    (tmp_path / "mounted").mkdir()
    assert {one.reason for one in store.put(items(REFS))} == {Reason.FAILED}
    assert read(store, REFS[:1]) == ["absent"]
    assert files(tmp_path / "mounted") == []


def test_a_description_that_a_crash_of_the_machine_cut_is_written_again(tmp_path: Path) -> None:
    filled(tmp_path, MADE)
    described = tmp_path / "namespaces" / MADE.namespace.digest / "namespace.json"
    described.write_bytes(b"")
    assert all(FileStore(tmp_path).put(items(MADE.block(3))))
    assert described.read_bytes() == MADE.namespace.encoded


def test_what_cannot_be_moved_aside_is_not_overwritten(tmp_path: Path) -> None:
    """An intact part of another block lies in the way, and quarantine cannot be made."""
    store = filled(tmp_path, MADE)
    here, there = MADE.block(0)[1], MADE.block(1)[1]
    path = path_of(tmp_path, there)
    path_of(tmp_path, here).replace(path)
    data = path.read_bytes()
    (tmp_path / "quarantine").write_text("in the way")
    assert [one.reason for one in store.put(items([there]))] == [Reason.MISPLACED]
    assert path.read_bytes() == data
    path.write_bytes(data[:-1])  # of what is corrupt there is nothing to lose
    assert all(store.put(items([there])))
    assert read(store, [there]) == ["right"]


def test_another_process_may_store_the_part_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the rename: the part is left as it is, and the outcome says what is there."""
    store, other, ref = FileStore(tmp_path), FileStore(tmp_path), REFS[0]
    write = part_file.write

    def late(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(part_file, "write", write)
        assert all(other.put(items([ref])))
        write(*arguments, **named)

    monkeypatch.setattr(part_file, "write", late)
    assert all(store.put(items([ref])))
    assert store.counts().get("bytes", {}).get("written", 0) == 0
    assert read(store, [ref]) == ["right"]
    assert store.gc().used == path_of(tmp_path, ref).stat().st_size

    def later_version(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(part_file, "write", write)
        path = path_of(tmp_path, REFS[1])
        data = path_of(tmp_path, ref).read_bytes().replace(b'"format_version":"1"', b'"format_version":"3"')
        path.write_bytes(data)
        write(*arguments, **named)

    monkeypatch.setattr(part_file, "write", later_version)
    assert [one.reason for one in store.put(items([REFS[1]]))] == [Reason.NEWER_FORMAT]


def test_counts_are_by_reason_and_failures_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "statehal")
    store = filled(tmp_path, MADE)
    (tmp_path / "temporary").rmdir()
    (tmp_path / "temporary").write_text("in the way")
    assert not any(store.put(items(MADE.block(4))))
    assert not any(store.put(items(MADE.block(5))))
    assert caplog.text.count("put missed, failed") == 1
    read(store, [*REFS, *MADE.block(6)])
    counts = store.counts()
    assert counts["put"] == {"done": 8, "failed": 8}
    assert counts["get"] == {"done": 8, "absent": 4}
    sizes = sum(path.stat().st_size for path in files(tmp_path))
    assert counts["bytes"] == {"read": sizes, "written": sizes}
    counts["put"]["done"] = 0  # type: ignore[index]
    assert store.counts()["put"]["done"] == 8


def test_without_the_library_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from statehal.errors import MissingDependency

    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(
        MissingDependency, match=r"need xxhash, which is not installed \(fix: pip install 'statehal\[store\]'\)"
    ):
        FileStore(tmp_path)


def test_reading_notes_the_use_and_missing_does_not(tmp_path: Path) -> None:
    store = filled(tmp_path, MADE)
    for path in files(tmp_path):
        os.utime(path, ns=(1, 1))
    read(store, REFS[:2])
    assert all(store.put(items(REFS[2:3])))
    assert all(store.exists(REFS[3:4]))
    used = [path_of(tmp_path, ref).stat().st_mtime_ns > 1 for ref in REFS]
    assert used == [True, True, True] + [False] * 5
    assert buffers(REFS[:1])[0][1] != payload(REFS[0])
