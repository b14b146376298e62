"""The store on Mooncake passes the suite of all stores, on the real engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from statehal.portability.store import PartRef
from statehal.portability.store.mooncake_client import new_client
from statehal.testing.stores import CHECKS, StoreTarget, run_check
from store.mooncake_cluster import Cluster, cluster, require_mooncake
from store.placing import PlacingStore

pytestmark = pytest.mark.xdist_group("mooncake")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Any]]:
    """A cluster, and one client of it for all of the stores."""
    require_mooncake()
    with cluster(tmp_path_factory.mktemp("mooncake")) as made:
        client = new_client(
            made.master, made.metadata, hostname="127.0.0.1", segment_bytes=0, buffer_bytes=1 << 20, protocol="tcp",
            devices="",
        )  # fmt: skip
        yield made, client
        client.close()


def mooncake_target(made: Cluster, client: Any, registered: bool) -> StoreTarget:
    def name(ref: PartRef) -> str:
        return f"{ref.namespace.digest}/{ref.key}/{ref.part.id}"

    def store() -> Any:
        found = made.store(connect=lambda: client, lane_bytes=1 << 16)
        return PlacingStore(found) if registered else found

    def read_raw(ref: PartRef) -> bytes | None:
        return bytes(client.get(name(ref))) or None

    def write_raw(ref: PartRef, data: bytes) -> None:
        client.batch_remove([name(ref)], True)
        assert client.put(name(ref), data or b"\0") == 0  # there are no values without bytes: the next best

    return StoreTarget(store, read_raw, write_raw)


@pytest.mark.parametrize("registered", [False, True], ids=["copied", "registered"])
@pytest.mark.parametrize("name", CHECKS)
def test_on_mooncake(name: str, registered: bool, engine: tuple[Cluster, Any]) -> None:
    made, client = engine
    client.remove_all(True)
    result = run_check(CHECKS[name], mooncake_target(made, client, registered))
    assert result.status == "passed", result.message
