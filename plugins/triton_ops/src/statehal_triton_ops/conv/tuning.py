"""How the conv kernels divide their work."""

from dataclasses import dataclass

from statehal.errors import ArgumentError
from statehal_triton_ops.axes import UNIT, power_of_two

NARROW = 4
"""Widest convolution whose weights leave registers for a whole access of each thread; past it, half of one is taken."""


@dataclass(frozen=True)
class ConvTuning:
    """Sizes that a plugin chooses for a device; any choice gives the same bits.

    Attributes:
        lanes: threads of a warp.
        warps: of a program of a convolution; each thread has 16 bytes of a row, or 8 where the convolution is wide.
        tokens: packed tokens that a program of a prefill streams; it reads ``width - 1`` more, which its neighbour has.
        rows: rows that such a program loads at once.
        words: 4-byte words that a program of a commit loads at once, a power of two.
        tiles: how often.
    """

    lanes: int = 32
    warps: int = 2
    tokens: int = 64
    rows: int = 4
    words: int = 1024
    tiles: int = 4

    def __post_init__(self) -> None:
        sizes = self.lanes, self.warps, self.tokens, self.rows, self.words, self.tiles
        if min(sizes) < 1 or any(size & (size - 1) for size in (self.lanes, self.warps, self.words)):
            raise ArgumentError(f"{self}: expected positive sizes; lanes, warps and words are powers of two")

    def block(self, channels: int, width: int, itemsize: int) -> tuple[int, int]:
        """Channels and warps of a program.

        Args:
            channels, width: of the convolution.
            itemsize: bytes of an element of the window, or of the input where that is wider.

        Examples:
            >>> ConvTuning().block(8192, 4, 2), ConvTuning().block(8192, 8, 2), ConvTuning().block(40, 4, 4)
            ((512, 2), (256, 2), (64, 1))
        """
        each = UNIT // itemsize // (2 if width > NARROW and itemsize == 2 else 1) * self.lanes
        block = min(self.warps * each, power_of_two(channels))
        return block, max(1, block // each)
