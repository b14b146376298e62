"""Tracing of hooks and bound operations, decided by ``STATEHAL_TRACE`` when a host binds."""

import functools
import os
import threading
from collections.abc import Mapping

from statehal import env
from statehal.trace.chrome import ChromeTracer, open_tracer
from statehal.trace.describe import describe
from statehal.trace.summary import SummaryRow, summarise
from statehal.trace.text import TextTracer

Tracer = TextTracer | ChromeTracer
"""Either kind of tracer."""

__all__ = ["ChromeTracer", "SummaryRow", "TextTracer", "Tracer", "current", "describe", "summarise"]

_opening = threading.Lock()


def current(environ: Mapping[str, str] | None = None) -> Tracer | None:
    """The tracer that ``STATEHAL_TRACE`` asks for, ``None`` where tracing is off.

    A process has one for each setting: the registry attaches it to its plugin manager, the binding wraps operations.

    Raises:
        EnvError: the variable cannot be read, or the file cannot be written.
    """
    setting = env.trace(environ)
    if setting is None:
        return None
    with _opening:  # two threads must not open one file twice
        return _open(setting, os.getpid())


@functools.lru_cache(maxsize=8)
def _open(setting: env.TraceSetting, pid: int) -> Tracer:
    return TextTracer() if setting.kind == "text" else open_tracer(setting.path, pid)
