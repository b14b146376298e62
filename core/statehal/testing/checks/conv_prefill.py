"""``CausalConv1d.prefill``."""

from typing import Any

import torch

from statehal.testing.check import check
from statehal.testing.conv.cases import RunCase, runs
from statehal.testing.conv.prompts import PromptCase, equal, equal_states, inputs, part, prefill, prompts
from statehal.testing.conv.requests import Mix
from statehal.testing.conv.rig import Rig
from statehal.testing.conv.run import Run
from statehal.testing.conv.setups import windows
from statehal.testing.conv.watched import WatchedRun
from statehal.testing.conv.weights import WAYS, WeightCase, check_reloads, reloads
from statehal.testing.target import Target

PROMPTS = Mix(("prefill",))
EVERY_WIDTH = tuple(f"width {width}" for width in range(2, 9))
SEQUENCES = (
    "an empty sequence", "one token", "a chunk shorter than the history", "an initial state",
    "another slot's initial state", "padding as an id of the sink", "padding as a negative id",
)  # fmt: skip
AROUND = (
    "tokens before the first sequence", "tokens past the last sequence", "out is x", "strided inputs", "a batch of 0",
    "int32", "int64", "several layers", "a view of a bigger pool",
)  # fmt: skip


def packed(target: Target) -> Any:
    """Packed prompts in every form."""
    return runs(windows(target), PROMPTS, 3)


@check(
    "conv_prefill",
    needs=("conv.prefill",),
    cases=packed,
    features=(*EVERY_WIDTH, *SEQUENCES, *AROUND, "bias", "no bias", "silu", "no activation", "drafts"),
)
def check_outputs_are_the_convolution(target: Target, case: RunCase) -> None:
    """Each token gives activation(bias + weighted sum of it and the W-1 before it), in its sequence or its history."""
    Run(target, case.setup).rounds(case.steps)


@check("conv_prefill", needs=("conv.prefill",), cases=packed, features=(*SEQUENCES, "drafts"))
def check_only_its_windows_change(target: Target, case: RunCase) -> None:
    """A prefill puts the last W-1 inputs at positions 1 to W-1 of its slots' windows and changes no other byte."""
    WatchedRun(target, case.setup).rounds(case.steps)


def empty_prompts(target: Target) -> Any:
    """Mostly sequences without tokens, in slots with recurrent rows."""
    return runs(windows(target), Mix(("prefill",), lengths=(0, 0, 1, 4)), 3, state=True)


@check(
    "conv_prefill",
    needs=("conv.prefill",),
    cases=empty_prompts,
    features=("an empty sequence", "an initial state", "another slot's initial state", "several layers", "padding"),
)
def check_an_empty_sequence_takes_its_initial_state_or_is_zeroed(target: Target, case: RunCase) -> None:
    """A sequence without tokens zeroes its slot, or takes its initial state, recurrent rows included."""
    Run(target, case.setup).rounds(case.steps)


def cut_prompts(target: Target) -> Any:
    """Prompts and where they are cut."""
    return prompts(windows(target))


@check(
    "conv_prefill",
    needs=("conv.prefill",),
    cases=cut_prompts,
    features=(*EVERY_WIDTH, "cut at an end", "cut in the middle", "a chunk shorter than the history", "silu", "bias"),
)
def check_chunks_are_the_whole(target: Target, case: PromptCase) -> None:
    """A prompt in two chunks, in one slot or from one to another, gives the bits of the whole prompt."""
    rig = Rig(target, case.setup, 3)
    xs = inputs(rig, case.tokens)
    whole = prefill(rig, xs, 1)
    for cut in case.cuts:
        first = prefill(rig, part(xs, 0, cut), 2)
        equal(f"the first {cut} of {case.tokens} tokens", first, part(whole, 0, cut))
        before = rig.state([2])
        moved = prefill(rig, part(xs, cut), 3, 2)
        equal(f"the tokens from {cut} after another slot's state", moved, part(whole, cut))
        assert rig.state([2]) == before, f"a chunk from slot 2 to 3, cut at {cut}, changed slot 2"
        equal(f"the tokens from {cut}", prefill(rig, part(xs, cut), 2, 2), part(whole, cut))
        for slot in (2, 3):
            equal_states(f"cut at {cut}", rig, slot, 1)


@check("conv_prefill", needs=("conv.prefill",), cases=cut_prompts, features=("several layers", "drafts"))
def check_a_reused_slot_does_not_leak(target: Target, case: PromptCase) -> None:
    """Without an initial state, or with one read from padding, nothing of a slot's earlier request is seen."""
    rig = Rig(target, case.setup, 2)
    xs = inputs(rig, case.tokens)
    wanted = prefill(rig, xs, 1)
    starts: list[dict[str, Any]] = [{}, {"has_initial_state": rig.bools([False])}]
    starts.append(starts[1] | {"initial_slots": rig.pick([2])})
    if not case.setup.checking:  # which refuses to read padding
        starts += [{"has_initial_state": rig.bools([True]), "initial_slots": rig.pick([slot])} for slot in (0, -1)]
    for start in starts:
        prefill(rig, {layer: torch.full_like(x, float("inf")) for layer, x in xs.items()}, 2)
        got = {}
        for layer, x in xs.items():
            given = target.on_device(x)
            got[layer] = rig.conv.prefill(layer, given, rig.ints([0, len(x)]), rig.pick([2]), **start).cpu()
        rig.commit([2])
        what = f"in a slot that was used, with {sorted(start)}"
        equal(what, got, wanted)
        equal_states(what, rig, 2, 1)


def saving_prompts(target: Target) -> Any:
    """Prompts with snapshots, in slots whose cursors have moved."""
    moved = Mix(("verify",)) if "conv.verify" in target.providers else None
    return runs(windows(target), Mix(("prefill",), snapshots=True, lengths=(0, 1, 3, 9)), 3, first=moved)


@check(
    "conv_prefill",
    needs=("conv.prefill", "snapshots"),
    cases=saving_prompts,
    features=("a snapshot", "drafts", "an initial state", "several layers", "padding", "recurrent state"),
)
def check_snapshots_are_live_at_once(target: Target, case: RunCase) -> None:
    """A snapshot makes the window after that many tokens the live rows of its slot, at that slot's present cursor."""
    run = WatchedRun(target, case.setup)
    run.rounds(case.steps)
    run.decode_twice()


def reloaded(target: Target) -> Any:
    """Prompts between which weights change."""
    return reloads(windows(target), PROMPTS)


@check("conv_prefill", needs=("conv.prefill",), cases=reloaded, features=(*WAYS, "bias", "no bias", "several layers"))
def check_weights_are_used_as_they_are(target: Target, case: WeightCase) -> None:
    """A prefill uses a layer's weights as they are when it is called, and those of the last prepare."""
    check_reloads(target, case)
