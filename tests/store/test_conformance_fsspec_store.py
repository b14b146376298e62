"""The store on file systems of fsspec passes the suite of all stores: in memory, in a directory, on S3."""

from collections.abc import Iterator

import pytest

from statehal.testing.stores import CHECKS, run_check, store_conformance_tests
from store.object_servers import local_target, memory_target, object_target, s3_filesystem, s3_server

pytestmark = pytest.mark.xdist_group("object-servers")

test_in_memory = store_conformance_tests(memory_target)
test_in_a_directory = store_conformance_tests(local_target)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.mark.parametrize("name", CHECKS)
def test_on_s3(name: str, s3: str) -> None:
    filesystem = s3_filesystem(s3)
    filesystem.mkdir(prefix := name.replace("/", "-").replace("_", "-")[:60].rstrip("-"))
    result = run_check(CHECKS[name], object_target(f"{prefix}/store", filesystem))
    assert result.status == "passed", result.message
