"""A batch has an outcome an item; one item is none of another's business."""

import threading
from collections.abc import Callable
from functools import partial

from statehal.errors import ArgumentError
from statehal.testing.stores.blocks import block, found, payload, stored
from statehal.testing.stores.store_check import StoreTarget, store_check


@store_check("batches")
def check_outcomes_are_in_order(target: StoreTarget) -> None:
    """Every method answers one outcome an item, in the order of the items, each miss with its reason."""
    store = target.open()
    there, missing = [ref for number in (0, 1) for ref in block(number)], block(2)
    stored(store, *there)
    mixed = [ref for pair in zip(there, missing, strict=False) for ref in pair]
    expected = ["right", "absent"] * len(missing)
    assert found(store, *mixed) == expected
    assert [bool(one) for one in store.exists(mixed)] == [state == "right" for state in expected]
    assert [str(one.reason) for one in store.exists(mixed)] == ["None", "absent"] * len(missing)
    assert [bool(one) for one in store.delete(mixed)] == [state == "right" for state in expected]


@store_check("batches")
def check_an_empty_batch_is_nothing(target: StoreTarget) -> None:
    """No items, no outcomes."""
    store = target.open()
    assert [store.exists([]), store.put([]), store.get([]), store.delete([])] == [[], [], [], []]


@store_check("batches")
def check_one_part_twice_in_a_batch(target: StoreTarget) -> None:
    """A part that stands in a batch twice is stored once and read twice."""
    store, (ref, *_) = target.open(), block(0)
    stored(store, ref, ref)
    assert found(store, ref, ref) == ["right", "right"]


@store_check("batches")
def check_a_buffer_that_does_not_fit_is_refused_before_anything_is_done(target: StoreTarget) -> None:
    """A buffer of another length, and one that cannot be written where it is read into, is an ``ArgumentError``."""
    store, (first, second, *_) = target.open(), block(0)
    size = second.part.nbytes
    for length in (0, size - 1, size + 1, 2 * size):
        _refused(partial(store.put, [(first, payload(first)), (second, bytes(length))]), f"put of {length} bytes")
    assert found(store, first) == ["absent"], "part of a refused batch was stored"
    stored(store, first, second)
    memory = bytearray(b"\xa5" * first.part.nbytes)
    for length in (0, size - 1, size + 1, 2 * size):
        _refused(partial(store.get, [(first, memory), (second, bytearray(length))]), f"get into {length} bytes")
    _refused(lambda: store.get([(first, memory), (second, bytes(size))]), "get into bytes that cannot be written")
    assert memory == b"\xa5" * len(memory), "part of a refused batch was read"


@store_check("batches")
def check_counts_tell_hits_and_misses_by_reason(target: StoreTarget) -> None:
    """Counts has how often each outcome came, by operation and reason, of this object alone."""
    stored(target.open(), *block(0))
    store, refs = target.open(), block(0)
    found(store, *refs, *block(1)[:3])
    counts = store.counts()
    assert dict(counts["get"]) == {"done": len(refs), "absent": 3}, counts
    assert not counts.get("put"), f"puts of another object are counted: {counts}"
    store.exists(refs[:2])
    store.delete(refs[:1])
    assert store.counts()["exists"] == {"done": 2}
    assert store.counts()["delete"] == {"done": 1}


@store_check("batches")
def check_threads_do_not_mix(target: StoreTarget) -> None:
    """Methods may be called from several threads at once."""
    store = target.open()
    bad: list[str] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 6):
                refs = block(number)
                stored(store, *refs)
                states = found(store, *refs, *block(number + 100))
                if states != ["right"] * len(refs) + ["absent"] * len(refs):
                    bad.append(f"block {number}: {states}")
        except BaseException as error:
            bad.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 3, 6, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad, "; ".join(bad)


def _refused(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except ArgumentError:
        return
    raise AssertionError(f"{what} is not refused")
