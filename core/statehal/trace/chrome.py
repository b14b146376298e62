"""``STATEHAL_TRACE=FILE.json``: Chrome trace events of hooks and bound operations, for Perfetto."""

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pluggy

from statehal import env
from statehal.trace.describe import describe
from statehal.trace.monitor import listen
from statehal.trace.streams import stream_id
from statehal.trace.writer import EventFile

_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Span(NamedTuple):
    track: int
    start_ns: int
    name: str
    arguments: dict[str, str]


class ChromeTracer:
    """Writes one complete event for each hook call and each call of a wrapped operation.

    Times are of the host: how long it took to issue the work, not how long the device ran; around nested calls they
    include the cost of tracing those. Each rank is a process and
    each of its streams a track; a further host thread on the same stream gets a track of its own, so that the events of
    a track always nest.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._pid = os.getpid()
        self._rank = rank
        self._lock = threading.Lock()
        self._origin_ns = self._last_ns = time.perf_counter_ns()
        self._tracks: dict[tuple[int, int], int] = {}
        self._file = EventFile(path, {"process_id": self._pid, "rank": rank, "start_unix_ns": time.time_ns()})
        self._metadata("process_name", 0, f"rank {rank}")
        atexit.register(self.close)

    def attach(self, manager: pluggy.PluginManager) -> None:
        """Record every hook call of ``manager`` from now on."""
        listen(manager, self)

    def wrap(self, op: str, backend: str, method: _Method) -> _Method:
        """Return ``method`` with each call recorded as ``op`` of ``backend``; arguments are described, never read."""

        @functools.wraps(method)
        def traced(*args: Any, **kwargs: Any) -> Any:
            shown = {name: describe(value) for name, value in kwargs.items()}
            shown |= {"arguments": describe(args), "backend": backend}
            span = self._begin(op, shown)
            try:
                result = method(*args, **kwargs)
            except BaseException as error:
                self._end(span, self._now(), "op", error)
                raise
            self._end(span, self._now(), "op", None)
            return result

        return cast("_Method", traced)

    def hook_started(self, hook: str, implementations: tuple[str, ...], arguments: Mapping[str, object]) -> _Span:
        """Part of ``HookListener``."""
        shown = {name: describe(value) for name, value in arguments.items()}
        return self._begin(hook, {**shown, "backend": ", ".join(implementations)})

    def hook_ended(self, started: _Span, result: object, error: BaseException | None) -> None:
        """Part of ``HookListener``."""
        end_ns = self._now()
        if error is None:
            started.arguments["result"] = describe(result)
        self._end(started, end_ns, "hook", error)

    def flush(self) -> None:
        """Write all events so far."""
        self._file.flush()

    def close(self) -> None:
        """Write all events and end the trace; wrapped operations keep working."""
        atexit.unregister(self.close)
        if os.getpid() == self._pid:  # a forked child holds a copy of the parent's events
            self._file.close()

    def _begin(self, name: str, arguments: dict[str, str]) -> _Span:
        track = self._track()
        return _Span(track, self._now(), name, arguments)

    def _end(self, span: _Span, end_ns: int, category: str, error: BaseException | None) -> None:
        if error is not None:
            span.arguments["error"] = describe(error)
        self._emit(
            {
                "ph": "X",
                "name": span.name,
                "cat": category,
                "pid": self._rank,
                "tid": span.track,
                "ts": (span.start_ns - self._origin_ns) / 1000,
                "dur": (end_ns - span.start_ns) / 1000,
                "args": span.arguments,
            }
        )

    def _now(self) -> int:
        """Nanoseconds that never repeat: a coarse clock would give durations of 0 and events that do not nest."""
        with self._lock:
            self._last_ns = max(self._last_ns + 1, time.perf_counter_ns())
            return self._last_ns

    def _track(self) -> int:
        stream, thread = stream_id(), threading.get_ident()
        with self._lock:
            known = self._tracks.get((stream, thread))
            if known is not None:
                return known
            taken = set(self._tracks.values())
            track = stream if stream not in taken else max(taken) + 1
            self._tracks[stream, thread] = track
        name = f"stream {stream}" if track == stream else f"stream {stream}, thread {threading.current_thread().name}"
        self._metadata("thread_name", track, name)
        return track

    def _metadata(self, kind: str, track: int, name: str) -> None:
        self._emit({"ph": "M", "name": kind, "pid": self._rank, "tid": track, "args": {"name": name}})

    def _emit(self, event: dict[str, Any]) -> None:
        if os.getpid() == self._pid:
            self._file.add(event)


def open_tracer(path: str, pid: int) -> ChromeTracer:
    """Start a trace in the file at ``path``, where ``%i`` stands for the process id."""
    return ChromeTracer(Path(path.replace("%i", str(pid))), env.RANK.number())
