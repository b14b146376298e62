"""The real engine loses its master, by a kill and by silence, and the store gets over it by itself."""

import gc
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statehal.portability.store import head_bytes
from store.mooncake_cluster import Cluster, cluster, require_mooncake
from store.placing import Placed
from store.programs import environ
from store.scene import items, payload, read, scene
from store.waiting import wait_until

pytestmark = pytest.mark.xdist_group("mooncake")
MADE = scene()
WAIT_S = 1.0
LIMIT_S = 20.0  # of a machine that has other things to do; a client by itself blocks for 4 to 60 seconds at each call


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    require_mooncake()
    with cluster(tmp_path) as found:
        yield found


OTHER = """
import sys
from statehal.portability.store import MooncakeStore
from store.scene import items, read, scene
made = scene()
refs = [ref for block in made.blocks(3) for ref in block]
with MooncakeStore(sys.argv[1], sys.argv[2], wait_s=60.0) as store:
    print("put", [bool(one) for one in store.put(items(refs))] == [True] * 12)
    print("get", set(read(store, refs)) == {"right"})
"""


def test_what_another_process_stored_is_found(made: Cluster) -> None:
    command = [sys.executable, "-c", OTHER, made.master, made.metadata]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines()[-2:] == ["put True", "get True"], done.stderr
    with made.store() as store:
        refs = [ref for block in MADE.blocks(4) for ref in block]
        assert read(store, refs) == ["right"] * 12 + ["absent"] * 4


def test_a_full_cluster_says_so_and_loses_nothing(tmp_path: Path) -> None:
    require_mooncake()
    with cluster(tmp_path, segment_bytes=16 << 20) as made, made.store() as store:
        large = scene(object_tokens=8192)  # parts of 1 MiB
        refs = [ref for block in large.blocks(5) for ref in block]
        outcomes = [str(one.reason) for one in store.put(items(refs))]
        assert {"None", "full"} <= set(outcomes) <= {"None", "full", "failed"}  # evicted before it was looked up
        assert read(store, refs) == ["right" if one == "None" else "absent" for one in outcomes]


def test_the_master_is_killed_and_comes_back(made: Cluster) -> None:
    """Misses and failed stores, each within the time that is waited, and at once after the first; then all is well."""
    with made.store(wait_s=WAIT_S, retry_s=0.2) as store:
        refs, others = MADE.block(0), MADE.block(1)
        assert wait_until(lambda: all(store.put(items(refs))))
        assert wait_until(lambda: read(store, refs) == ["right"] * 4)
        made.kill_master()
        calls: list[Callable[[], object]] = [
            lambda: read(store, refs) == ["failed"] * 4,
            lambda: {str(one.reason) for one in store.put(items(others))} == {"failed"},
            lambda: {str(one.reason) for one in store.exists(refs)} == {"failed"},
            lambda: {str(one.reason) for one in store.delete(refs)} == {"failed"},
        ]
        started = time.monotonic()
        for call in calls * 3:
            assert call()
        for _ in range(100):
            read(store, refs)
        assert time.monotonic() - started < LIMIT_S, "each call waits for a master that is gone"
        (outcome,) = store.exists(refs[:1])
        assert f"{made.master} is away" in outcome.detail
        made.start_master()
        assert wait_until(lambda: all(store.put(items(others)))), "the store does not come back"
        assert wait_until(lambda: read(store, others) == ["right"] * 4)
        assert wait_until(lambda: set(read(store, refs)) == {"absent"}), "a new master knows of no value"


def test_a_master_that_is_silent_is_not_waited_for(made: Cluster) -> None:
    with made.store(wait_s=WAIT_S, retry_s=0.2, lanes=2) as store:
        refs = MADE.block(0)
        assert wait_until(lambda: all(store.put(items(refs))))
        made.stop_master()
        started = time.monotonic()
        for _ in range(4):
            assert read(store, refs) == ["failed"] * 4
        assert time.monotonic() - started < LIMIT_S
        made.continue_master()
        assert wait_until(lambda: read(store, refs) == ["right"] * 4), "the store does not come back"


def test_registered_memory_outlives_a_master_that_is_silent_and_one_that_is_killed(made: Cluster) -> None:
    with made.store(wait_s=WAIT_S, retry_s=0.2) as store:
        refs, others = MADE.block(0), MADE.block(1)
        source, target = Placed(store, refs), Placed(store, refs)
        source.fill([payload(ref) for ref in refs])
        assert wait_until(lambda: all(source.registered.put(source.items)))
        made.stop_master()
        assert {str(one.reason) for one in target.registered.get(target.items)} == {"failed"}
        assert not target.registered.idle, "the call that was given up is still under way"
        made.continue_master()
        assert wait_until(lambda: target.registered.idle)
        assert wait_until(lambda: all(target.registered.get(target.items))), "the store does not come back"
        assert target.payloads() == [payload(ref) for ref in refs]
        made.kill_master()
        assert {str(one.reason) for one in source.registered.put(source.items)} == {"failed"}
        made.start_master()
        source.fill([payload(ref) for ref in others])
        again = [(ref, view) for ref, (_, view) in zip(others, source.items, strict=True)]
        assert wait_until(lambda: all(source.registered.put(again))), "the store does not come back"
        assert wait_until(lambda: read(store, others) == ["right"] * 4)
        for side in (source, target):
            side.registered.release()


def test_memory_that_is_released_without_a_metadata_server_is_kept_from_other_uses(made: Cluster) -> None:
    """The client then refuses whatever overlaps it, for ever: freed, its address would soon be another buffer's."""

    class Memory(bytearray):
        pass

    with made.store(retry_s=0.2) as store:
        (ref, *_) = refs = MADE.block(0)
        room = head_bytes(ref.namespace, ref.part)
        memory = Memory(room + ref.part.nbytes)
        ended, registered = weakref.ref(memory), store.register(memory)
        assert all(registered.put([(ref, memoryview(memory)[room:])]))
        made.kill_master()
        registered.release()
        made.start_master()
        del registered
        del memory
        gc.collect()
        assert ended() is not None
        other = Placed(store, refs).fill([payload(ref) for ref in refs])
        assert wait_until(lambda: all(other.registered.put(other.items)))
    del store
    gc.collect()
    assert wait_until(lambda: ended() is None), "it is kept when the client is gone"


def test_a_store_that_starts_before_its_master_finds_it_later(made: Cluster) -> None:
    made.kill_master()
    started = time.monotonic()
    store = made.store(wait_s=WAIT_S, retry_s=0.2)
    refs = MADE.block(0)
    assert {str(one.reason) for one in store.put(items(refs))} == {"failed"}
    assert time.monotonic() - started < LIMIT_S
    made.start_master()
    assert wait_until(lambda: all(store.put(items(refs)))), "the store does not come back"
    assert wait_until(lambda: read(store, refs) == ["right"] * 4)
    store.close()
