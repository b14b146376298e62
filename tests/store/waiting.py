"""Waiting in tests, for so long that a slow machine is no failure."""

import threading
import time
from collections.abc import Callable


def until(event: threading.Event) -> None:
    event.wait(30)


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False
