"""The kernels with their arguments: integers of a layout, found once."""

from typing import Any

import torch
from torch import Tensor

from statehal.pool import SubPool
from statehal.spec import ConvRecurrent

BLOCK = 8192
"""Words that one access of a program moves; with its copy it has to fit into a core's 192 KiB."""

COLUMNS = 1024
"""Words of a row that move at once, of eight rows at most."""

PROGRAMS = 40
"""Programs of a launch, each of which goes through its share of the work: about the vector cores of a chip."""

CURSOR, WINDOW, RECURRENT = 0, 1, 2
"""Kinds of pieces."""


class Launches:
    """Launches over the slots of one sub-pool.

    Args:
        channels: of a window's row, padded.
    """

    def __init__(self, sub: SubPool, spec: ConvRecurrent, channels: int, *, rollback: bool) -> None:
        fields = [field for field in sub.layout.fields if field.name != "cursor"]
        conv, cursor = sub.layout.field("conv"), sub.layout.field("cursor")
        sizes = [size for one in fields for size in (one.base, one.layer_stride, one.page_stride, one.page_extent)]
        word = _word(sub.buffer.data_ptr(), channels * conv.itemsize, *sizes)
        device = sub.buffer.device
        self._words = sub.buffer.view({4: torch.int32, 2: torch.int16, 1: torch.uint8}[word])
        self._cursors = sub.view("cursor", spec.layers[0], "page")
        self._s_slot, self._s_cursor = cursor.page_stride // word, cursor.page_stride // 4
        self._count, self._drafts, self._live = sub.layout.num_pages, spec.verify_tokens, spec.width - 1
        self._rollback = rollback
        row = channels * conv.itemsize // word
        table = [(0, 0, CURSOR)]
        if rollback:
            table += [((conv.base + n * conv.layer_stride) // word, row, WINDOW) for n in range(len(conv.layers))]
        self._unmoved = len(table)
        by_layer: dict[int, list[tuple[int, int, int]]] = {layer: [] for layer in spec.layers}
        for field in fields:
            for n, (layer,) in enumerate(field.layers) if field.name != "conv" else ():
                piece = (field.base + n * field.layer_stride) // word, field.page_extent // word, RECURRENT
                table.append(piece)
                by_layer[layer].append(piece)
        self._table = torch.tensor(table, dtype=torch.int64, device=device)
        self._of_layer = {
            layer: torch.tensor(pieces, dtype=torch.int64, device=device)
            for layer, pieces in by_layer.items()
            if pieces
        }

    def commit(self, slots: Tensor, accepted: Tensor, states: Tensor | None, *, moves: bool) -> None:
        """End a step of ``slots`` ``[requests]``; ``states`` ``[requests, D]``. See ``kernels.commit.commit_slots``.

        Args:
            moves: whether rows of windows are moved where the protocol is rollback.
        """
        from statehal_ascend_npu.kernels.commit import commit_slots

        pieces = self._unmoved if states is None else self._table.shape[0]
        total = slots.shape[0] * pieces
        _launch(
            commit_slots, total, self._words, self._cursors, slots.contiguous(), accepted.contiguous(),
            slots if states is None else states.contiguous(), self._table, total, pieces, self._count, self._drafts,
            self._s_slot, self._s_cursor, LIVE=self._live, TILE=_power(self._live), ROLLBACK=self._rollback,
            MOVES=self._rollback and moves, STATES=states is not None, BLOCK=BLOCK, COLUMNS=COLUMNS,
        )  # fmt: skip

    def fetch(self, layer: int, target: Tensor, source: Tensor) -> None:
        """Copy recurrent rows of a layer between slots, ``[n]`` each: see ``kernels.commit.copy_pieces``."""
        from statehal_ascend_npu.kernels.commit import copy_pieces

        table = self._of_layer.get(layer)
        if table is None:
            return
        total = target.shape[0] * table.shape[0]
        _launch(
            copy_pieces, total, self._words, target, source, table, total, table.shape[0], self._count, self._s_slot,
            BLOCK=BLOCK,
        )  # fmt: skip


def zero_rows(rows: Tensor, dead: Tensor) -> None:
    """Zero the rows of ``[n, words]`` that ``dead`` ``[n]`` marks; no other is touched."""
    from statehal_ascend_npu.kernels.commit import zero_rows as kernel

    count, words = rows.shape
    _launch(kernel, count, rows, dead.to(torch.int32), count, words, rows.stride(0), BLOCK=BLOCK)


def _launch(kernel: Any, work: int, *arguments: Any, **constants: Any) -> None:
    if work:
        kernel[(min(work, PROGRAMS),)](*arguments, **constants)


def _word(*sizes: int) -> int:
    joined = 4
    for size in sizes:
        joined |= size
    return min(joined & -joined, 4)


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
