"""A client of Mooncake that is there or not: one that is lost is not asked, and is got back in the background."""

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from statehal.portability.store.mooncake_client import CallFailed, MooncakeClient, meaning

logger = logging.getLogger("statehal")

_PROBE = "statehal/probe"


class Down(Exception):
    """There is no master to ask; inside the store only."""


class Connection:
    """The client of a store, and whether its master answers.

    Mooncake's client gets over a master that is restarted by itself, but a call blocks for seconds while there is none.
    So nothing is asked of it from a call that found the master gone until a background thread has had an answer. Where
    the master answers and the client does not, the client is replaced.

    Args:
        connect: makes a client.
        master: ``host:port`` that is tried first, because to set up a client without a master blocks for a minute;
            any other form of address is not tried.
        retry_s: seconds between tries; one is made only when somebody asks for the client.
    """

    def __init__(self, connect: Callable[[], MooncakeClient], master: str, retry_s: float) -> None:
        self._connect = connect
        self._master = master
        self._address = _address(master)
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._client: MooncakeClient | None = None
        self._up = False
        self._closed = False
        self._why = "it has not answered yet"
        self._next_try = 0.0
        self._trying: threading.Thread | None = None

    def client(self) -> MooncakeClient:
        """The client.

        Raises:
            Down: the master does not answer; a try is begun where one is due.
        """
        with self._lock:
            if self._up and self._client is not None:
                return self._client
            if self._closed:
                raise Down("the store is closed")
            if self._trying is None and time.monotonic() >= self._next_try:
                self._begin_try()
            raise Down(f"{self._master} is away: {self._why}; it is tried again every {self._retry_s:g} s")

    def lost(self, why: str) -> None:
        """Say that a call found no master."""
        with self._lock:
            if self._up:
                self._up, self._why = False, why
                logger.warning("%s is away: %s", self._master, why)

    def begin(self, wait_s: float) -> None:
        """Get the client, and wait for it so long; where it is not there then, it is got later."""
        with suppress(Down):
            self.client()
        trying = self._trying
        if trying is not None:
            trying.join(wait_s)
        with self._lock:
            if not self._up:
                logger.warning("%s is away: %s", self._master, self._why)

    def close(self) -> MooncakeClient | None:
        """Give the client to nobody from now on; returns it, unless the background is asking it something."""
        with self._lock:
            self._closed, self._up = True, False
            client, self._client = self._client, None
            return client if self._trying is None else None

    def _begin_try(self) -> None:
        trying = threading.Thread(target=self._try, name="statehal-connect", daemon=True)
        try:
            trying.start()
        except RuntimeError as error:  # the system has no more threads for this process
            self._why, self._next_try = str(error), time.monotonic() + self._retry_s
        else:
            self._trying = trying

    def _try(self) -> None:
        try:
            self._get_back()
            why = ""
        except Exception as error:  # whatever a client raises
            why = f"{type(error).__name__}: {error}"
        with self._lock:
            self._up, self._why, self._trying = not why and not self._closed, why, None
            self._next_try = time.monotonic() + self._retry_s

    def _get_back(self) -> None:
        if self._address is not None:
            socket.create_connection(self._address, timeout=self._retry_s).close()
        old = self._client
        if old is not None:
            code = _answers(old)
            if code >= 0:
                logger.warning("%s is back", self._master)
                return
            logger.warning("%s: the client is replaced: %s", self._master, meaning(code))
        fresh = self._connect()
        if (code := _answers(fresh)) < 0:
            raise CallFailed(code)
        with self._lock:
            # not closed, for a call that hangs may be inside: it goes with its last user
            closed, self._client = self._closed, None if self._closed else fresh
        if closed:
            fresh.close()


def _answers(client: MooncakeClient) -> int:
    """Below zero where the master does not."""
    (code,) = client.batch_is_exist([_PROBE])
    return code


def _address(master: str) -> tuple[str, int] | None:
    host, _, port = master.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() and "/" not in host else None
