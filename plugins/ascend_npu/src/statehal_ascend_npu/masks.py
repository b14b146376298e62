"""Rows of which some are padding."""

from torch import Tensor


def masked(rows: Tensor, mask: Tensor) -> Tensor:
    """``rows`` ``[n, ...]``, and zeros where ``mask`` ``[n]`` is false, whatever was there, NaN included."""
    return rows.masked_fill(~mask.view(-1, *(1 for _ in rows.shape[1:])), 0)
