"""A cluster of Mooncake on this host: a master, and a client that holds the memory, as processes over TCP."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statehal.errors import MissingDependency
from statehal.portability.store import MooncakeStore
from statehal.portability.store.mooncake_client import client_class

_LEASE = "60s"  # one that ends while a value is read is a failure, and a process may stand still for a while
# The kernel ends what is started here when the test's process dies, however it dies.
_WITH_PARENT = "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
_MASTER = _WITH_PARENT + "import os; os.execv(sys.argv[1], sys.argv[1:])"
_HOLDER = _WITH_PARENT + (
    "from mooncake.store import MooncakeDistributedStore; "
    "client = MooncakeDistributedStore(); "
    "print(client.setup('127.0.0.1', sys.argv[2], int(sys.argv[3]), 1 << 20, 'tcp', '', sys.argv[1]), flush=True); "
    "sys.stdin.read()"
)


def require_mooncake() -> None:
    """Skip where the client is missing, with what is missing; in CI that is a failure."""
    try:
        client_class()
    except MissingDependency as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI has to run the tests of Mooncake: {error}", pytrace=False)
        pytest.skip(str(error))


class Cluster:
    """A master on free ports of the loopback, and the process that holds the memory of its values.

    Attributes:
        master: the master's address.
        metadata: its metadata server's.
    """

    def __init__(self, log: Path, segment_bytes: int) -> None:
        self._log = log
        self._ports = free_ports(3)
        self.master = f"127.0.0.1:{self._ports[0]}"
        self.metadata = f"http://127.0.0.1:{self._ports[1]}/metadata"
        self._running: list[subprocess.Popen[str]] = []
        self.start_master()
        self.holder = self._start(_HOLDER, self.master, self.metadata, str(segment_bytes), stdin=subprocess.PIPE)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline().strip() == "0", log.read_text()

    def start_master(self) -> None:
        """Start the master, on the same ports each time, and wait until it listens."""
        import mooncake

        rpc, metadata, metrics = self._ports
        self.process = self._start(
            _MASTER, str(Path(mooncake.__file__).with_name("mooncake_master")),
            f"-rpc_port={rpc}", "-rpc_address=127.0.0.1", "-enable_http_metadata_server=true",
            "-http_metadata_server_host=127.0.0.1", f"-http_metadata_server_port={metadata}",
            f"-metrics_port={metrics}", "-metrics_host=127.0.0.1", f"-default_kv_lease_ttl={_LEASE}",
        )  # fmt: skip
        for port in (rpc, metadata):
            self._wait_for(port)

    def kill_master(self) -> None:
        """As a machine that loses its power."""
        self.process.kill()
        self.process.wait()

    def stop_master(self) -> None:
        """It keeps its connections and answers nothing, until ``continue_master``."""
        self.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":  # the signal is on its way
            time.sleep(0.001)

    def continue_master(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def store(self, **options: Any) -> MooncakeStore:
        """A store of this process, which holds no memory of the cluster's; it waits for a machine that is slow."""
        return MooncakeStore(self.master, self.metadata, **{"buffer_bytes": 1 << 20, "wait_s": 60.0} | options)

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()

    def _start(self, code: str, *arguments: str, **named: Any) -> "subprocess.Popen[str]":
        with self._log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=log, text=True, **named
            )
        self._running.append(process)
        return process

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                assert self.process.poll() is None, f"the master has ended:\n{self._log.read_text()}"
                assert time.monotonic() < deadline, f"no master in 30 s:\n{self._log.read_text()}"
                time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports that nobody had a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def cluster(folder: Path, *, segment_bytes: int = 64 << 20) -> Iterator[Cluster]:
    """A cluster, which is ended with the block, and with this process."""
    made = Cluster(folder / "mooncake.log", segment_bytes)
    try:
        yield made
    finally:
        made.end()
