"""A file of Chrome trace events that is valid JSON after every write."""

import contextlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

from statehal.errors import EnvError

_FOOTER = b"\n]}\n"
_BATCH = 512

logger = logging.getLogger("statehal")


class EventFile:
    """Appends events in batches; each write overwrites the footer and ends with a new one.

    So the file can be read while the program runs and after it was killed; what is lost then is the last batch. A
    write that fails ends the trace with a warning and never the program.

    Raises:
        EnvError: the file cannot be made, or another process is writing it.
    """

    def __init__(self, path: Path, other: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._pending: list[str] = []
        self._first = True
        try:
            # not "w": another process's file must stay whole until it is known to be free
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0)
            self._claim(path)
            self._file.truncate(0)
            header = f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(other)}, "traceEvents": ['
            self._end = len(header)
            self._file.write(header.encode() + _FOOTER)
        except OSError as error:
            raise EnvError(
                f"STATEHAL_TRACE: cannot write {str(path)!r}: {error.strerror} (fix: name a file in a folder that "
                "exists and can be written)"
            ) from error

    def _claim(self, path: Path) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on this system: two writers go unnoticed
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise EnvError(
                f"STATEHAL_TRACE: another process is writing {str(path)!r} (fix: put %i, the process id, into the path)"
            ) from None

    def add(self, event: dict[str, Any]) -> None:
        """Append one event."""
        text = json.dumps(event)
        with self._lock:
            self._pending.append(text)
            if len(self._pending) >= _BATCH:
                self._write()

    def flush(self) -> None:
        """Write what is pending."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Write what is pending and close the file; further events are dropped."""
        with self._lock:
            self._write()
            self._file.close()

    def _write(self) -> None:
        if not self._pending or self._file.closed:
            self._pending.clear()
            return
        body = ("\n" if self._first else ",\n") + ",\n".join(self._pending)
        data = body.encode()
        try:
            self._file.seek(self._end)
            left = memoryview(data + _FOOTER)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            logger.warning("the trace ends here: %s", error)
            with contextlib.suppress(OSError):  # back to the last valid state
                self._file.seek(self._end)
                self._file.write(_FOOTER)
                os.ftruncate(self._file.fileno(), self._end + len(_FOOTER))
            self._file.close()
        self._end += len(data)
        self._first = False
        self._pending.clear()
