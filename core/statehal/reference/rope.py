"""RMS norms and rotary position embedding, in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def rms_norm(wide: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x * rsqrt(mean(x**2) + eps) * weight`` over the last axis of float64 ``[..., dim]``."""
    return wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.detach().to(wide.dtype)


@dataclass(frozen=True)
class Rotation:
    """The angles of some tokens.

    Attributes:
        cos, sin: float64 ``[tokens, rope_dim / 2]``.
        interleaved: a pair is ``(x[2i], x[2i+1])``, not ``(x[i], x[i + rope_dim/2])``.
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool

    def __call__(self, wide: Tensor) -> Tensor:
        """Rotate the first ``rope_dim`` elements of float64 ``[tokens, heads, dim]``; the others stay as they are."""
        cos, sin = self.cos[:, None], self.sin[:, None]
        turned, rest = wide.tensor_split([2 * cos.shape[-1]], -1)
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
        else:
            first, second = turned.tensor_split(2, -1)
        pair = first * cos - second * sin, second * cos + first * sin
        joined = torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)
        return torch.cat([joined, rest], -1)


@dataclass(frozen=True)
class RotationArguments:
    """What a caller gives of a rotation.

    Attributes:
        positions: int32 or int64 ``[tokens]``, or ``[3, tokens]`` with ``sections``.
        cos_sin: ``[max_position, rope_dim]``, cosines then sines.
        sections: how many frequencies, in order, take each row of the positions.
    """

    positions: Tensor
    cos_sin: Tensor
    interleaved: bool
    sections: Sequence[int] | None = None

    def rows(self) -> list[tuple[Tensor, slice]]:
        """Each row of the positions that is used, and the frequencies that take it."""
        if self.sections is None:
            return [(self.positions, slice(None))]
        starts = (0, self.sections[0], self.sections[0] + self.sections[1])
        parts = zip(self.positions, starts, self.sections, strict=True)
        return [(row, slice(start, start + size)) for row, start, size in parts if size]

    def make(self) -> Rotation:
        """Look the angles up; a position past the table takes those of its nearest end, never bytes beyond."""
        half = self.cos_sin.shape[1] // 2
        table = self.cos_sin.detach()
        parts: tuple[list[Tensor], list[Tensor]] = ([], [])
        for row, frequencies in self.rows():
            angles = table[row.clamp(0, table.shape[0] - 1)].to(torch.float64)
            for part, one in zip(parts, (angles[:, :half], angles[:, half:]), strict=True):
                part.append(one[:, frequencies])
        cos, sin = (torch.cat(part, -1) for part in parts)
        return Rotation(cos, sin, self.interleaved)
