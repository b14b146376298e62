"""Copies of tokens within a sub-pool: all fields, all layers."""

import torch
from torch import Tensor

from statehal.pool import SubPool
from statehal_triton_ops.axes import MOST_PAIRS, copy_tile, flat_ids, row_tile
from statehal_triton_ops.kernels import copies as kernels
from statehal_triton_ops.launch import launch
from statehal_triton_ops.pieces import piece_table


class RowCopies:
    """Copies rows of one sub-pool, in one launch for up to 4096 tokens.

    More tokens take two launches, and a scratch buffer of as many bytes as their rows have.
    """

    def __init__(self, sub: SubPool) -> None:
        kinds = {field.name: sub.layout.kinds(field.name)[0] for field in sub.layout.fields}
        self._buffer = sub.buffer
        self._facts = piece_table(sub.layout, sub.forms, kinds, sub.buffer.data_ptr())
        self._table = torch.tensor(self._facts.pieces, dtype=torch.int64, device=sub.buffer.device)

    def copy(self, dst: tuple[Tensor, ...], src: tuple[Tensor, ...]) -> None:
        """Copy the rows of ``src[i]`` to ``dst[i]``, as if all were read before any is written.

        A pair whose target is padding stores nothing, and a source that is padding is zeros.

        Args:
            dst: kernel ids of tokens, one tensor for each of ``sub.forms``, of one shape; none twice but for padding.
            src: the same.
        """
        pairs, facts = dst[0].numel(), self._facts
        if not pairs:
            return
        tile, scratch, steps = copy_tile(pairs, facts.longest), self._buffer, [(True, True)]
        if pairs > MOST_PAIRS:
            tile, steps = row_tile(facts.longest), [(True, False), (False, True)]
            scratch = torch.empty(pairs * facts.token_bytes, dtype=torch.uint8, device=self._buffer.device)
        for reads, writes in steps:
            launch(
                kernels.copy_rows,
                (tile.chunks * -(-pairs // tile.rows), len(facts.pieces)),
                self._buffer,
                scratch,
                self._table,
                tuple(flat_ids(one) for one in dst),
                tuple(flat_ids(one) for one in src),
                pairs,
                tile.chunks,
                num_warps=tile.warps,
                LONG=facts.long,
                DIGITS=facts.digits,
                AXES=facts.axes,
                WIDE=facts.wide,
                NARROW=facts.narrow,
                ROWS=tile.rows,
                UNITS=tile.units,
                READS=reads,
                WRITES=writes,
            )
