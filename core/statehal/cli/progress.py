"""What is shown on standard error of a terminal while something takes long, and is gone at the end."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def spinner(text: str) -> Iterator[None]:
    """For what has no known length."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextlib.contextmanager
def bytes_bar(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with speed and time left; call what it gives with the bytes done since the last call."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(20), DownloadColumn(binary_units=True),
        TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.advance(task, done)
