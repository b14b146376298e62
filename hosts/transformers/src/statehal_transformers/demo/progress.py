"""What the demo shows on standard error while something takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Shown:
    """Spinners and bars on one console, gone when they are done; in a log a line for each spinner."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._unwatched = not console.is_terminal

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """A spinner, for what has no known length."""
        if self._unwatched:
            self._console.print(text, markup=False, highlight=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True, disable=self._unwatched) as progress:
            progress.add_task(text, total=None)
            yield

    @contextmanager
    def bar(self, text: str, steps: int) -> Iterator[Callable[[int], None]]:
        """A bar; call what it gives with the number of steps done."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True, disable=self._unwatched) as progress:
            task = progress.add_task(text, total=steps)
            yield lambda done: progress.update(task, completed=done)
