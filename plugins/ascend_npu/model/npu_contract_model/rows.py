"""Rows of a tensor as lists of numbers; a test may count who reads and writes them."""

from collections.abc import Callable

import torch

Row = list[float]


class Rows:
    """Reads and writes whole rows of a contiguous tensor, ``[..., channels]``.

    Raises:
        IndexError: a row outside of the tensor.
    """

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        if not tensor.is_contiguous():
            raise ValueError(f"{name} {tuple(tensor.shape)} has strides {tensor.stride()}: it has to be contiguous")
        self.name, self.tensor = name, tensor

    def read(self, *at: int) -> Row:
        self._inside(at)
        values: Row = self.tensor[at].tolist()
        return values

    def write(self, row: Row, *at: int) -> None:
        self._inside(at)
        self.tensor[at] = torch.tensor(row, dtype=torch.float64).to(self.tensor.dtype)

    def _inside(self, at: tuple[int, ...]) -> None:
        for place, size in zip(at, self.tensor.shape, strict=False):
            if not 0 <= place < size:
                raise IndexError(f"{self.name}{list(at)} is outside of {list(self.tensor.shape)}")


made: Callable[[str, torch.Tensor], Rows] = Rows
"""What the operators read and write through; a test that counts puts its own here."""


def of(name: str, tensor: torch.Tensor) -> Rows:
    """The rows of a tensor."""
    return made(name, tensor)
