"""The causal conv1d operators that CANN builds have had, behind one call."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from statehal.errors import Unsupported
from statehal_ascend_npu.operators.schema import find

KNOWN = {
    "update": (
        "npu::causal_conv1d(Tensor x, Tensor weight, Tensor conv_states, Tensor? bias=None, "
        "Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None, "
        "Tensor? num_accepted_tokens=None, int activation_mode=0, int pad_slot_id=-1, int run_mode=0) -> Tensor"
    ),
    "prefill only": (
        "npu::causal_conv1d(Tensor x, Tensor weight, Tensor conv_states, Tensor query_start_loc, "
        "Tensor cache_indices, Tensor has_initial_state, Tensor? bias=None, bool activation_mode=False, "
        "int pad_slot_id=-1) -> Tensor"
    ),
    "custom": (
        "_C_ascend::npu_causal_conv1d_custom(Tensor output, Tensor x, Tensor weight, Tensor conv_state, "
        "Tensor? bias_opt, Tensor? query_start_loc_opt, Tensor? cache_indices_opt, Tensor? initial_state_mode_opt, "
        "Tensor? num_accepted_tokens_opt, int activation_mode, int pad_slot_id, int run_mode) -> Tensor"
    ),
}
"""Schemas by kind, best first."""

PAD = -1
"""The one index that every operator skips; any other negative one is an access out of bounds in some."""

WIDTHS = (2, 3, 4)
"""Widths that the operators compute."""

DRAFTS_WIDTH = 4
"""The one width that heeds ``num_accepted_tokens``; others ignore it, or raise."""

DTYPES = (torch.float16, torch.bfloat16)
"""Dtypes of x, weight, bias and state, all of which are one."""


class Conv1d:
    """An operator by keywords.

    Attributes:
        updates: it has the mode that goes on from a window at a given row (``run_mode=1``).
        index: dtype of index tensors, which it takes without a cast.
    """

    def __init__(self, call: Any, kind: str) -> None:
        self._call, self._kind = call, kind
        self.updates = kind != "prefill only"
        self.index = torch.int32 if kind == "custom" else torch.int64

    def __call__(
        self,
        x: Tensor,
        weight: Tensor,
        state: Tensor,
        bias: Tensor | None,
        step: "Sequences",
        *,
        silu: bool,
    ) -> Tensor:
        """Convolve packed sequences and write ``state``.

        A prefill reads and writes rows ``0 .. W-2`` of its entries; an update reads ``W-1`` rows from
        ``accepted - 1`` on (0 where there is none) and leaves history but for its oldest row, and tokens, from row 0.

        Args:
            x: ``[tokens, channels]``, contiguous, channels a multiple of 16.
            weight: ``[width, channels]``, the tap of the present token last.
            state: ``[entries, rows, channels]``, contiguous; written in place, whatever the schema says.
            bias: ``[channels]``.
            step: which sequences there are.
            silu: whether the activation is silu.

        Returns:
            ``[tokens, channels]``, in which rows of skipped sequences are not initialised.
        """
        mode = int(step.update)
        if self._kind == "prefill only":
            result: Tensor = self._call(
                x=x, weight=weight, conv_states=state, query_start_loc=step.starts, cache_indices=step.entries,
                has_initial_state=step.initial, bias=bias, activation_mode=silu, pad_slot_id=PAD,
            )  # fmt: skip
        elif self._kind == "custom":
            result = self._call(
                output=torch.empty_like(x), x=x, weight=weight, conv_state=state, bias_opt=bias,
                query_start_loc_opt=step.starts, cache_indices_opt=step.entries, initial_state_mode_opt=step.initial,
                num_accepted_tokens_opt=step.accepted, activation_mode=int(silu), pad_slot_id=PAD, run_mode=mode,
            )  # fmt: skip
        else:
            result = self._call(
                x=x, weight=weight, conv_states=state, bias=bias, query_start_loc=step.starts,
                cache_indices=step.entries, has_initial_state=step.initial, num_accepted_tokens=step.accepted,
                activation_mode=int(silu), pad_slot_id=PAD, run_mode=mode,
            )  # fmt: skip
        return result


class Sequences(NamedTuple):
    """Packed sequences as the operators take them; index tensors are of ``Conv1d.index``.

    Attributes:
        starts: ``[sequences + 1]``.
        entries: ``[sequences]``, windows of the state, ``PAD`` for those that are skipped.
        initial: bool ``[sequences]``: which go on from rows ``0 .. W-2``; ``None`` in an update, where all go on.
        accepted: ``[sequences]``, 1 and up: in an update, one more than the row at which the history begins.
        update: whether this is an update.
    """

    starts: Tensor
    entries: Tensor
    initial: Tensor | None = None
    accepted: Tensor | None = None
    update: bool = False


def choose() -> Conv1d | None:
    """The operator that is registered in this process; ``None`` where there is none.

    Raises:
        Unsupported: there is one, of a schema that is not known.
    """
    found = find(KNOWN)
    return None if found is None else Conv1d(found.call, found.kind)


def described() -> str:
    """For ``statehal doctor``."""
    try:
        found = find(KNOWN)
    except Unsupported as error:
        return f"refused: {error}"
    return "torch operations: no operator is registered" if found is None else str(found.call._schema)
