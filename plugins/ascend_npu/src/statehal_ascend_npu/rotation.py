"""RMS norms and rotary position embedding, in float32 by torch's operations: no fused operator has a known schema."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def rms_norm(wide: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """``x * rsqrt(mean(x**2) + eps) * weight`` over the last axis of float32 ``[..., dim]``; ``x`` without a weight."""
    if weight is None:
        return wide
    return wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.detach().float()


@dataclass(frozen=True)
class Rotation:
    """What a caller gives of a rotation.

    Attributes:
        positions: integers ``[tokens]``, or ``[3, tokens]`` with ``sections``; those outside of the table take its end.
        cos_sin: ``[max_position, rope_dim]``, cosines then sines.
        interleaved: a pair is ``(x[2i], x[2i+1])``, not ``(x[i], x[i + rope_dim/2])``.
        sections: how many frequencies, in order, take each row of the positions.
    """

    positions: Tensor
    cos_sin: Tensor
    interleaved: bool
    sections: Sequence[int] | None = None

    def angles(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 ``[tokens, 1, rope_dim / 2]``: looked up once for q and k."""
        half, table = self.cos_sin.shape[1] // 2, self.cos_sin.detach()
        rows = [(table[row.clamp(0, table.shape[0] - 1)].float(), part) for row, part in self._rows()]
        cos = torch.cat([row[:, :half][:, part] for row, part in rows], -1)
        sin = torch.cat([row[:, half:][:, part] for row, part in rows], -1)
        return cos[:, None], sin[:, None]

    def _rows(self) -> Iterator[tuple[Tensor, slice]]:
        if self.sections is None:
            yield self.positions, slice(None)
            return
        start = 0
        for row, size in zip(self.positions, self.sections, strict=True):
            yield row, slice(start, start + size)
            start += size

    def turn(self, wide: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate the first ``rope_dim`` elements of float32 ``[tokens, heads, dim]``; the others stay as they are."""
        cos, sin = angles
        turned, rest = wide.tensor_split([2 * cos.shape[-1]], -1)
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
        else:
            first, second = turned.tensor_split(2, -1)
        pair = first * cos - second * sin, second * cos + first * sin
        joined = torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)
        return torch.cat([joined, rest], -1)
