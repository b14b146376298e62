"""The file store passes the suite of all stores."""

from pathlib import Path

import pytest

from statehal.errors import ArgumentError
from statehal.portability.store import FileStore, PartRef
from statehal.testing.stores import CHECKS, StoreTarget, run, store_conformance_tests
from store.scene import path_of


def file_target(folder: Path) -> StoreTarget:
    def read_raw(ref: PartRef) -> bytes | None:
        path = path_of(folder, ref)
        return path.read_bytes() if path.exists() else None

    def write_raw(ref: PartRef, data: bytes) -> None:
        path_of(folder, ref).write_bytes(data)

    return StoreTarget(lambda: FileStore(folder), read_raw, write_raw)


test_file_store = store_conformance_tests(file_target)


def test_the_suite_runs_without_pytest() -> None:
    results = run(file_target)
    assert [(one.check, one.status) for one in results] == [(name, "passed") for name in CHECKS]


def test_without_raw_access_checks_of_damage_are_filtered_and_said_so() -> None:
    results = run(lambda folder: StoreTarget(lambda: FileStore(folder)), only="damage/*")
    assert {(one.status, one.reason) for one in results} == {("filtered", "the target has no read_raw and write_raw")}


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"no check of stores matches 'damaged\*' \(fix: a pattern"):
        run(file_target, only="damaged*")
