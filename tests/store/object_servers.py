"""Object stores for tests: fsspec's own in memory, a directory, and S3 as a local server in this process."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statehal.portability.store import FsspecStore, PartRef
from statehal.testing.stores import StoreTarget

OPTIONS = {"key": "test", "secret": "test"}


def object_target(url: str, filesystem: Any = None, **options: Any) -> StoreTarget:
    """A target under a prefix; raw bytes by the file system's own calls, at names written here once more."""

    def store() -> FsspecStore:
        return FsspecStore(url, filesystem=filesystem, **options)

    first = store()
    fs, root = first._objects._fs, first._objects._root

    def path(ref: PartRef) -> str:
        return f"{root}/namespaces/{ref.namespace.digest}/{ref.key[:2]}/{ref.key}.{ref.part.id}.safetensors"

    def read_raw(ref: PartRef) -> bytes | None:
        return bytes(fs.cat_file(path(ref))) if fs.exists(path(ref)) else None

    def write_raw(ref: PartRef, data: bytes) -> None:
        fs.pipe_file(path(ref), data)

    return StoreTarget(store, read_raw, write_raw)


def memory_target(folder: Path) -> StoreTarget:
    """One prefix of the memory file system, which is one in a process."""
    return object_target(f"memory://{uuid.uuid4().hex}")


def local_target(folder: Path) -> StoreTarget:
    """A directory."""
    return object_target(f"file://{folder}/store")


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of an S3 on a free port of this host, without buckets."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def s3_filesystem(endpoint: str) -> Any:
    """A file system on that endpoint, of its own."""
    import s3fs

    return s3fs.S3FileSystem(endpoint_url=endpoint, use_listings_cache=False, skip_instance_cache=True, **OPTIONS)
