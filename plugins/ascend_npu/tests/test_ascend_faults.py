"""Faults that engines have had, planted into the plugin: the random runs notice each of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ascend_rig import Requests
from test_ascend_conv_steps import decode, long_run, prefill, verify
from torch import Tensor

from statehal_ascend_npu.causal_conv1d import AscendCausalConv1d
from statehal_ascend_npu.conv import checkpoints, plans
from statehal_ascend_npu.conv.slots import Slots
from statehal_ascend_npu.conv.steps import StepCache
from statehal_ascend_npu.operators.conv1d import PAD

Plant = Callable[[pytest.MonkeyPatch], None]


def _cursor_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The history is read where a plain decode would leave it, whatever was accepted."""
    patch.setattr(Slots, "first_live", lambda self, slots: torch.zeros_like(slots))


def _cursor_is_not_normalised(patch: pytest.MonkeyPatch) -> None:
    """A chunk goes on from the first rows, although a commit of several made others live."""
    original = Slots.place

    def place(self: Slots, layer: int, slots: Tensor, rows: Tensor, mask: Tensor) -> None:
        if rows.shape[1] != self.history or mask.dim() != 1:  # all but what goes before the operator
            original(self, layer, slots, rows, mask)

    patch.setattr(Slots, "place", place)


def _entries_are_slots(patch: pytest.MonkeyPatch) -> None:
    """As if windows of a layer lay side by side."""
    patch.setattr(plans, "entries", lambda slots, safe, due: safe.where(due, PAD))


def _padding_is_another_negative(patch: pytest.MonkeyPatch) -> None:
    original = plans.entries
    patch.setattr(plans, "entries", lambda slots, safe, due: original(slots, safe, due).where(due, -2))


def _padding_is_computed(patch: pytest.MonkeyPatch) -> None:
    """A padded sequence has entry 0, the sink's."""
    patch.setattr(plans, "entries", lambda slots, safe, due: safe * slots.ratio)


def _rows_stay_uninitialised(patch: pytest.MonkeyPatch) -> None:
    original = AscendCausalConv1d._finished

    def finished(self: Any, result: Tensor, dead: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
        return original(self, result, torch.zeros_like(dead), x, out)

    patch.setattr(AscendCausalConv1d, "_finished", finished)


def _commit_counts_from_one(patch: pytest.MonkeyPatch) -> None:
    """The count of this step is written where one less belongs."""
    original = checkpoints.Checkpoints.commit

    def commit(self: Any, ids: Tensor, accepted: Tensor, path: Tensor | None, states: Tensor | None) -> None:
        original(self, ids, (accepted + 1).clamp(max=self._slots.drafts), path, states)

    patch.setattr(checkpoints.Checkpoints, "commit", commit)


def _steps_never_end(patch: pytest.MonkeyPatch) -> None:
    """Index tensors of the last step are used again, and layers that ask twice are believed."""

    def get(self: Any, layer: int, kind: str, tensors: Any, make: Callable[[], Any]) -> Any:
        return self._values.setdefault(kind, ((), set(), make()))[2]

    patch.setattr(StepCache, "get", get)
    patch.setattr(StepCache, "clear", lambda self: None)


FAULTS: dict[str, Plant] = {
    name.removeprefix("_").replace("_", " "): plant
    for name, plant in list(globals().items())
    if name.startswith("_") and not name.startswith("__") and callable(plant)
}


def test_the_runs_pass_without_a_fault(operators: Callable[..., None]) -> None:
    operators("current")
    rounds()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    operators("current")
    FAULTS[name](monkeypatch)
    with pytest.raises((AssertionError, IndexError)):  # of the model, where it is an access out of bounds
        rounds()


def rounds() -> None:
    """Random rounds, after prompts whose first chunks were followed by drafts."""
    run = Requests(4, 4, seed=11)
    prefill(run)
    for _ in range(3):
        verify(run, ragged=True)
        prefill(run)
        run.check_state()
    decode(run)
    assert not run.sub.view("conv", 4, "row")[0].any(), "the sink"
    long_run(4, 4, 2, seed=12)
