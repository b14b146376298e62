"""``CausalConv1d.decode``."""

from typing import Any

from statehal.testing.check import check
from statehal.testing.conv.cases import RunCase, runs
from statehal.testing.conv.prompts import PromptCase, decode, equal, equal_states, inputs, part, prefill, prompts
from statehal.testing.conv.requests import Mix
from statehal.testing.conv.rig import Rig
from statehal.testing.conv.run import Run
from statehal.testing.conv.setups import windows
from statehal.testing.conv.watched import WatchedRun
from statehal.testing.conv.weights import WAYS, WeightCase, check_reloads, reloads
from statehal.testing.target import Target

DECODES, PROMPTS = Mix(("decode",)), Mix(("prefill",))
EVERY_WIDTH = tuple(f"width {width}" for width in range(2, 9))
FEATURES = (
    "a decode", "padding as an id of the sink", "padding as a negative id", "drafts", "out is x", "strided inputs",
    "a batch of 0", "several layers", "a view of a bigger pool", "int32", "int64",
)  # fmt: skip


def after_prompts(target: Target) -> Any:
    """Decodes after prompts."""
    return runs(windows(target), DECODES, 4, first=PROMPTS)


@check(
    "conv_decode",
    needs=("conv.decode",),
    cases=after_prompts,
    features=(*EVERY_WIDTH, *FEATURES, "bias", "no bias", "silu", "no activation"),
)
def check_outputs_are_the_convolution(target: Target, case: RunCase) -> None:
    """A decoded token gives activation(bias + weighted sum of it and the W-1 live rows of its slot)."""
    Run(target, case.setup).rounds(case.steps)


@check("conv_decode", needs=("conv.decode",), cases=after_prompts, features=FEATURES)
def check_only_its_windows_change(target: Target, case: RunCase) -> None:
    """A decode puts its token and the history that stays at positions 1 to W-1 and changes no other byte."""
    WatchedRun(target, case.setup).rounds(case.steps)


def after_drafts(target: Target) -> Any:
    """Windows longer than the history, whose cursors have moved by more than one."""
    return runs(windows(target), Mix(("verify",)), 2, first=PROMPTS, drafts=(2, 3, 4, 8))


@check(
    "conv_decode",
    needs=("conv.decode",),
    cases=after_drafts,
    features=("all accepted", "some accepted", "one of several accepted", "several layers"),
)
def check_two_in_a_row_after_a_commit_of_several(target: Target, case: RunCase) -> None:
    """After a commit of several tokens two decodes in a row see the tokens that were kept, and each other."""
    run = Run(target, case.setup)
    run.rounds(case.steps)
    run.decode_twice()


def cut_prompts(target: Target) -> Any:
    """Prompts of random numbers."""
    return prompts(windows(target))


@check("conv_decode", needs=("conv.decode",), cases=cut_prompts, features=(*EVERY_WIDTH, "silu", "bias", "drafts"))
def check_decodes_are_the_prompt(target: Target, case: PromptCase) -> None:
    """Tokens that are decoded one by one, from the first or after a chunk, give the bits of a prefill of all."""
    rig = Rig(target, case.setup, 2)
    xs = inputs(rig, case.tokens)
    whole = prefill(rig, xs, 1)
    for cut in case.cuts[:2]:
        prefill(rig, part(xs, 0, cut), 2)
        equal(f"decoded from token {cut}", decode(rig, part(xs, cut), 2), part(whole, cut))
        equal_states(f"decoded from token {cut}", rig, 2, 1)


def reloaded(target: Target) -> Any:
    """Decodes between which weights change."""
    return reloads(windows(target), DECODES)


@check("conv_decode", needs=("conv.decode",), cases=reloaded, features=(*WAYS, "bias", "no bias", "several layers"))
def check_weights_are_used_as_they_are(target: Target, case: WeightCase) -> None:
    """A decode uses a layer's weights as they are when it is called, and those of the last prepare."""
    check_reloads(target, case)
