"""Where the rows of a conv window lie, by commit protocol: the table of ``docs/contract.md`` in plain integers.

With ``L = width - 1``, positions ``0 .. L-1`` of a step are a slot's history, oldest first, and ``L + j`` is its j-th
token.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """A window of ``rows`` rows for a convolution of ``width`` taps."""

    protocol: str
    width: int
    rows: int

    @property
    def taps(self) -> int:
        """Live rows."""
        return self.width - 1

    def live(self, cursor: int) -> list[int]:
        """The live rows before a step and after its commit, oldest first."""
        if self.protocol == "ring":
            return [(cursor + i) % self.rows for i in range(self.taps)]
        if self.protocol == "offset":
            return [cursor + i for i in range(self.taps)]
        return [self.rows - self.taps + i for i in range(self.taps)]

    def placed(self, cursor: int, position: int) -> int:
        """The row of a position of at least 1, from a step to its commit."""
        return (cursor + position) % self.rows if self.protocol == "ring" else position - 1

    def after(self, cursor: int, accepted: int) -> int:
        """The cursor after a commit."""
        if self.protocol == "ring":
            return (cursor + accepted) % self.rows
        return accepted - 1 if self.protocol == "offset" else 0
