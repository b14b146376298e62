"""The byte budget: what goes, what never goes, and what counting costs."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statehal.portability.store import FileStore, PartRef, Reason, part_file
from statehal.portability.store.directory import Directory, StoredBlock
from statehal.portability.store.maintenance import inventory
from store.scene import files, filled, flipped, items, path_of, read, scene

MADE = scene(object_tokens=16, head_groups=1)
BLOCK = 2 * 4992
"""Bytes of a block on the disk: two parts of a header and 4 KiB of payload; checked below."""


def held(root: Path) -> int:
    """Bytes of everything that a budget is for."""
    return sum(
        path.stat().st_size
        for pattern in ("namespaces/*/*/*", "quarantine/*/*", "temporary/*")
        for path in root.glob(pattern)
    )


def use_in_order(root: Path, blocks: list[list[PartRef]]) -> None:
    """Set the times of use, the first block's being the longest ago."""
    for number, block in enumerate(blocks):
        for ref in block:
            os.utime(path_of(root, ref), ns=(1, 1_000_000_000 * (number + 1)))


def states(root: Path, blocks: list[list[PartRef]]) -> list[str]:
    """Of each block its parts' states, as one word where they agree, without noting a use."""
    store = FileStore(root)
    found = [{"there" if outcome else str(outcome.reason) for outcome in store.exists(block)} for block in blocks]
    return [one.pop() if len(one) == 1 else "torn" for one in found]


def count_listings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that gets an entry whenever a directory is listed."""
    listed: list[bool] = []
    blocks = Directory.blocks

    def counted(self: Directory, namespace: str | None = None) -> object:
        listed.append(True)
        return blocks(self, namespace)

    monkeypatch.setattr(Directory, "blocks", counted)
    return listed


def test_the_size_of_a_block(tmp_path: Path) -> None:
    filled(tmp_path, MADE, 1)
    assert held(tmp_path) == BLOCK


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    blocks = MADE.blocks(8)
    filled(tmp_path, MADE, 6)
    use_in_order(tmp_path, blocks[:6])
    store = FileStore(tmp_path, max_bytes=6 * BLOCK)
    assert set(read(store, blocks[0])) == {"right"}
    assert all(store.put(items(blocks[6])))
    # block 0 was read; without block 1 nine tenths of the budget are kept
    assert states(tmp_path, blocks) == ["there", "absent", "there", "there", "there", "there", "there", "absent"]
    assert store.counts()["evicted"] == {"parts": 2, "bytes": BLOCK, "spared_pinned": 0}
    assert all(store.put(items(blocks[7])))
    assert states(tmp_path, blocks) == ["there", "absent", "absent", *["there"] * 5]


def test_a_block_goes_as_a_whole_by_the_last_use_of_any_part(tmp_path: Path) -> None:
    """Ranks read parts of a block of their own; one of them keeps it for all."""
    blocks = MADE.blocks(4)
    filled(tmp_path, MADE, 3)
    use_in_order(tmp_path, blocks[:3])
    read(FileStore(tmp_path), blocks[0][:1])
    store = FileStore(tmp_path, max_bytes=3 * BLOCK)
    assert all(store.put(items(blocks[3])))
    assert states(tmp_path, blocks)[:2] == ["there", "absent"]


def test_pinned_blocks_stay_whatever_the_budget(tmp_path: Path) -> None:
    blocks = MADE.blocks(4)
    filled(tmp_path, MADE, 3)
    use_in_order(tmp_path, blocks[:3])
    pinning = FileStore(tmp_path)
    pinned = [(MADE.namespace, blocks[0][0].key), (MADE.namespace, blocks[1][0].key)]
    assert all(pinning.pin(pinned))
    for store in (pinning, FileStore(tmp_path)):  # its own evictions respect them, too
        done = store.gc(0)
        assert (done.used, done.pinned) == (2 * BLOCK, 2)
        assert states(tmp_path, blocks[:3]) == ["there", "there", "absent"]
        assert {one.reason for one in store.delete(blocks[0])} == {Reason.PINNED}
    small = FileStore(tmp_path, max_bytes=2 * BLOCK)
    outcomes = small.put(items(blocks[3]))
    assert {one.reason for one in outcomes} == {Reason.OVER_BUDGET}
    assert "does not fit into 19,968 bytes" in outcomes[0].detail
    assert set(read(small, [*blocks[0], *blocks[1]])) == {"right"}
    assert all(pinning.pin(pinned[:1]))  # they nest
    assert all(pinning.unpin(pinned))
    assert [one.reason for one in pinning.unpin(pinned[1:])] == [Reason.ABSENT]
    assert all(small.put(items(blocks[3])))
    assert states(tmp_path, blocks) == ["there", "absent", "absent", "there"]
    pinning.close()
    assert FileStore(tmp_path).gc(0).used == 0


def test_pinned_blocks_that_are_the_oldest_do_not_hide_the_others(tmp_path: Path) -> None:
    blocks = MADE.blocks(400)
    store = filled(tmp_path, MADE, 400)
    use_in_order(tmp_path, blocks)
    store.pin([(MADE.namespace, block[0].key) for block in blocks[:300]])
    done = FileStore(tmp_path).gc(350 * BLOCK)
    assert done.used <= 350 * BLOCK
    assert states(tmp_path, blocks)[:300] == ["there"] * 300


def test_a_budget_that_is_lowered_far_takes_two_listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, MADE, 300)
    use_in_order(tmp_path, MADE.blocks(300))
    listed = count_listings(monkeypatch)
    assert store.gc(20 * BLOCK).used == 20 * BLOCK
    assert states(tmp_path, MADE.blocks(300)) == ["absent"] * 280 + ["there"] * 20
    assert len(listed) == 2


def counted(root: Path) -> int | None:
    """The shared count."""
    return inventory(Directory(root)).counted


def test_what_is_stored_while_the_directory_is_listed_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the listing has passed it by: the count is too high rather than too low."""
    store, other = filled(tmp_path, MADE, 2), FileStore(tmp_path)
    blocks = Directory.blocks

    def listing(self: Directory, namespace: str | None = None) -> Iterator[StoredBlock]:
        yield from list(blocks(self, namespace))
        assert all(other.put(items(MADE.block(5))))

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "blocks", listing)
        store.gc()
    assert counted(tmp_path) == held(tmp_path) == 3 * BLOCK


def test_what_is_being_written_while_the_directory_is_listed_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its room, and not a byte of it is written yet."""
    store, other = filled(tmp_path, MADE, 2), FileStore(tmp_path)
    store.gc()
    write = part_file.write

    def late(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(part_file, "write", write)
        other.gc()
        write(*arguments, **named)

    monkeypatch.setattr(part_file, "write", late)
    assert all(store.put(items(MADE.block(5))))
    assert counted(tmp_path) == held(tmp_path) == 3 * BLOCK


@pytest.mark.parametrize("most", [0, 24, 1 << 20], ids=["not even the count", "no part", "no file of its size"])
def test_what_could_not_be_written_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    store = filled(tmp_path, MADE, 2)
    store.gc()
    pwrite = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if len(data) > most:
            raise OSError(28, "No space left on device")
        return pwrite(fd, data, offset)

    def truncated(fd: int, nbytes: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        if most > 24:
            patch.setattr(os, "ftruncate", truncated)
        assert {one.reason for one in store.put(items(MADE.block(5)))} == {Reason.FULL}
    assert list((tmp_path / "temporary").iterdir()) == []
    assert counted(tmp_path) == held(tmp_path) == 2 * BLOCK


def test_pins_survive_that_their_file_is_made_by_whoever_needs_it(tmp_path: Path) -> None:
    store = filled(tmp_path, MADE, 2)
    (tmp_path / "pins.lock").unlink()
    assert all(store.pin([(MADE.namespace, MADE.block(0)[0].key)]))
    assert FileStore(tmp_path).gc(0).pinned == 1


def test_a_part_that_is_larger_than_the_budget_evicts_nothing(tmp_path: Path) -> None:
    filled(tmp_path, MADE, 1)
    store = FileStore(tmp_path, max_bytes=BLOCK)
    large = scene(object_tokens=64, head_groups=1)
    assert {one.reason for one in store.put(items(large.block(0)))} == {Reason.OVER_BUDGET}
    assert states(tmp_path, MADE.blocks(1)) == ["there"]


def test_quarantined_files_count_and_go_first(tmp_path: Path) -> None:
    blocks = MADE.blocks(4)
    filled(tmp_path, MADE, 3)
    use_in_order(tmp_path, blocks[:3])
    path = path_of(tmp_path, blocks[2][0])
    path.write_bytes(flipped(path.read_bytes(), 8 * path.stat().st_size - 3))
    store = FileStore(tmp_path, max_bytes=3 * BLOCK)
    read(store, blocks[2])
    assert len(list(tmp_path.glob("quarantine/*/*"))) == 1
    assert all(store.put(items(blocks[2])))
    assert held(tmp_path) <= 3 * BLOCK
    assert list(tmp_path.glob("quarantine/*/*")) == []
    assert states(tmp_path, blocks[:3]) == ["there"] * 3


@pytest.mark.parametrize("damage", ["missing", "short", "flipped", "of another store"])
def test_a_count_that_is_lost_is_made_anew(tmp_path: Path, damage: str) -> None:
    filled(tmp_path, MADE, 4).gc()
    usage = tmp_path / "usage"
    data = usage.read_bytes()
    if damage == "missing":
        usage.unlink()
    else:
        usage.write_bytes({"short": data[:5], "flipped": flipped(data, 5), "of another store": b"x" * 64}[damage])
    store = FileStore(tmp_path, max_bytes=4 * BLOCK)
    for block in MADE.blocks(12)[4:]:
        assert all(store.put(items(block)))
        assert held(tmp_path) <= 4 * BLOCK
    assert store.gc().used == held(tmp_path)


def test_a_put_does_not_list_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed once for every tenth of the budget that is written."""
    listed = count_listings(monkeypatch)
    store = FileStore(tmp_path, max_bytes=100 * BLOCK)
    for block in MADE.blocks(300):
        assert all(store.put(items(block)))
    assert len(listed) <= 1 + 200 * 10 // 100 + 2
    assert held(tmp_path) <= 100 * BLOCK


class BudgetMachine(RuleBasedStateMachine):
    """Two stores of one directory: nothing pinned goes, the budget holds, and what is read is right."""

    LIMIT = 6

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.stores = [FileStore(self.root, max_bytes=self.LIMIT * BLOCK) for _ in range(2)]
        self.blocks = MADE.blocks(10)
        self.there: set[int] = set()
        self.pins: list[tuple[int, int]] = []
        self.clock = 0

    @rule(which=st.integers(0, 1), number=st.integers(0, 9))
    def put(self, which: int, number: int) -> None:
        pinned = {block for _, block in self.pins}
        outcomes = self.stores[which].put(items(self.blocks[number]))
        if all(outcomes):
            self.used(number)
        else:
            assert {one.reason for one in outcomes if not one} == {Reason.OVER_BUDGET}
            assert len(pinned & self.present()) >= self.LIMIT - 2, "there was room"

    @rule(which=st.integers(0, 1), number=st.integers(0, 9))
    def get(self, which: int, number: int) -> None:
        whole = number in self.present()
        found = set(read(self.stores[which], self.blocks[number]))
        assert found == {"right"} if whole else "wrong" not in found
        if whole:
            self.used(number)

    @rule(which=st.integers(0, 1), number=st.integers(0, 9))
    def pin(self, which: int, number: int) -> None:
        assert all(self.stores[which].pin([(MADE.namespace, self.blocks[number][0].key)]))
        self.pins.append((which, number))

    @rule(which=st.integers(0, 1), number=st.integers(0, 9))
    def unpin(self, which: int, number: int) -> None:
        (outcome,) = self.stores[which].unpin([(MADE.namespace, self.blocks[number][0].key)])
        assert bool(outcome) == ((which, number) in self.pins)
        if outcome:
            self.pins.remove((which, number))

    @rule(which=st.integers(0, 1), number=st.integers(0, 9))
    def delete(self, which: int, number: int) -> None:
        pinned = number in {block for _, block in self.pins}
        outcomes = self.stores[which].delete(self.blocks[number])
        assert all((one.reason is Reason.PINNED) == pinned for one in outcomes)

    def present(self) -> set[int]:
        """Blocks of which every part lies in the directory."""
        return {
            number for number, block in enumerate(self.blocks) if all(path_of(self.root, ref).exists() for ref in block)
        }

    def used(self, number: int) -> None:
        """Give the block a time of use of its own, as far apart as any file system tells times."""
        self.clock += 1
        for ref in self.blocks[number]:
            os.utime(path_of(self.root, ref), ns=(1, 1_000_000_000 * self.clock))

    @invariant()
    def nothing_pinned_goes(self) -> None:
        if not hasattr(self, "root"):
            return
        now = self.present()
        assert {block for _, block in self.pins} & self.there <= now
        self.there = {block for _, block in self.pins} & now
        assert held(self.root) <= self.LIMIT * BLOCK

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            for store in self.stores:
                store.close()
            self.folder.cleanup()


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(derandomize=True, max_examples=25, stateful_step_count=25, deadline=None)


def test_files_are_listed_by_a_second_reader_alike(tmp_path: Path) -> None:
    filled(tmp_path, MADE, 5)
    (tmp_path / "namespaces" / "stray").write_text("x")
    (tmp_path / "namespaces" / MADE.namespace.digest / "stray").write_text("x")
    (files(tmp_path)[0].parent / "stray.safetensors").write_text("x")
    listed = {part.path for block in Directory(tmp_path).blocks() for part in block.parts}
    assert listed == {str(path_of(tmp_path, ref)) for block in MADE.blocks(5) for ref in block}
