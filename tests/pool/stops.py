"""What stops a call half way: an error of torch, or a signal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Stop(TorchFunctionMode):
    """Raises at one call of torch, counted from 0; ``passed`` counts those before it."""

    def __init__(self, at: int, error: type[BaseException] = torch.OutOfMemoryError) -> None:
        super().__init__()
        self.at, self.error, self.passed = at, error, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.passed == self.at:
            raise self.error(f"at {getattr(func, '__name__', func)}")
        self.passed += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def interrupted(at: int) -> Iterator[None]:
    """``KeyboardInterrupt`` where Python looks for signals: at one of its calls, counted from 0."""
    left = at

    def look(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        if event != "return" and "statehal" in frame.f_code.co_filename:  # nobody looks while a function returns
            if left == 0:
                raise KeyboardInterrupt
            left -= 1

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
