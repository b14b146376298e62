"""Tables of cosines and sines, positions and norm weights that rotations and norms are drawn with."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.testing.oracles.rope import Rope

LENGTH = 40
"""Positions of a table."""

FLOATS = ("float32", "bfloat16", "float16")
"""Dtypes of tables and weights."""


@dataclass(frozen=True)
class Turn:
    """A rotation.

    Attributes:
        rope_dim: elements that are rotated; 0 for no rotation.
        sections: counts of frequencies of the three rows of positions; ``()`` for one row.
        outside: some positions lie outside of the table.
    """

    rope_dim: int
    interleaved: bool = False
    sections: tuple[int, ...] = ()
    table_dtype: str = "float32"
    position_dtype: torch.dtype = torch.int64
    outside: bool = False

    @property
    def features(self) -> set[str]:
        """In words."""
        if not self.rope_dim:
            return {"no rotation"}
        found = {"neighbours" if self.interleaved else "halves", f"{self.table_dtype} table"}
        found |= {"positions in three rows"} if self.sections else {"positions in one row"}
        found |= {"positions outside of the table"} if self.outside else set()
        return found

    def table(self) -> Tensor:
        """``[LENGTH, rope_dim]``, cosines then sines."""
        half = self.rope_dim // 2
        steps = 100.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(LENGTH)[:, None] * steps
        return torch.cat([angles.cos(), angles.sin()], -1).to(getattr(torch, self.table_dtype))

    def positions(self, count: int, seed: int) -> Tensor:
        """``[count]`` or ``[3, count]``."""
        shape = (3, count) if self.sections else (count,)
        low, high = (-9, LENGTH + 9) if self.outside else (0, LENGTH)
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(low, high, shape, generator=generator).to(self.position_dtype)

    def oracle(self, eps: float = 1e-6) -> Rope:
        """What must come of it."""
        return Rope(self.table().double().tolist() if self.rope_dim else (), self.interleaved, self.sections, eps)

    def rows(self, positions: Tensor) -> list[list[int]]:
        """Of each token its one position, or three."""
        return positions.T.tolist() if self.sections else [[one] for one in positions.tolist()]


NO_TURN = Turn(0)
"""No rotation."""


@st.composite
def turns(draw: DrawFn, rope_dim: int, *, sections: bool = False, outside: bool = False) -> Turn:
    """A rotation of that many elements."""
    half = rope_dim // 2
    counts: tuple[int, ...] = ()
    if sections:
        first = draw(st.integers(0, half))
        second = draw(st.integers(0, half - first))
        counts = (first, second, half - first - second)
    return Turn(
        rope_dim,
        draw(st.booleans()),
        counts,
        draw(st.sampled_from(FLOATS)),
        draw(st.sampled_from([torch.int32, torch.int64])),
        outside,
    )


def weight(width: int, dtype: str, seed: int) -> Tensor:
    """The weight of a norm, ``[width]``."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(width, generator=generator) + 0.5).to(getattr(torch, dtype))
