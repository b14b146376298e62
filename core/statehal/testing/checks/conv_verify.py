"""``CausalConv1d.verify``."""

from typing import Any

from statehal.hookspecs.capabilities import TREES
from statehal.testing.check import check
from statehal.testing.conv.cases import RunCase, runs
from statehal.testing.conv.prompts import PromptCase, equal, equal_states, inputs, part, prefill, prompts, verify
from statehal.testing.conv.requests import Mix
from statehal.testing.conv.rig import Rig
from statehal.testing.conv.run import Run
from statehal.testing.conv.setups import windows
from statehal.testing.conv.watched import WatchedRun
from statehal.testing.conv.weights import WAYS, WeightCase, check_reloads, reloads
from statehal.testing.target import Target

DRAFTS, PROMPTS = Mix(("verify",)), Mix(("prefill",))
EVERY_WIDTH = tuple(f"width {width}" for width in range(2, 9))
FEATURES = (
    "ragged drafts", "full drafts", "rows past D", "padding as an id of the sink", "padding as a negative id",
    "tokens before the first sequence", "tokens past the last sequence", "one token a step", "out is x",
    "strided inputs", "a batch of 0", "several layers", "a view of a bigger pool", "int32", "int64",
)  # fmt: skip


def chains(target: Target) -> Any:
    """Drafts in chains, after prompts."""
    return runs(windows(target), DRAFTS, 3, first=PROMPTS)


@check(
    "conv_verify",
    needs=("conv.verify",),
    cases=chains,
    features=(*EVERY_WIDTH, *FEATURES, "bias", "no bias", "silu", "no activation"),
)
def check_outputs_are_the_convolution(target: Target, case: RunCase) -> None:
    """Each draft gives the convolution of it and what comes before it; rows past the D-th of a request are zero."""
    Run(target, case.setup).rounds(case.steps)


@check("conv_verify", needs=("conv.verify",), cases=chains, features=FEATURES)
def check_only_its_windows_change(target: Target, case: RunCase) -> None:
    """A verify puts history and tokens at positions 1 and up of its slots' windows and changes no other byte."""
    WatchedRun(target, case.setup).rounds(case.steps)


def trees(target: Target) -> Any:
    """Draft trees of any shape, after prompts."""
    return runs(windows(target), Mix(("verify",), trees=True), 3, first=PROMPTS, drafts=(3, 4, 5, 8))


@check(
    "conv_verify",
    needs=("conv.verify", TREES),
    cases=trees,
    features=(*EVERY_WIDTH, "a tree", "ragged drafts", "full drafts", "padding", "several layers"),
)
def check_a_row_of_a_tree_sees_its_ancestors(target: Target, case: RunCase) -> None:
    """A row of a draft tree gives the convolution of it, its ancestors and then the history, and of no other row."""
    Run(target, case.setup).rounds(case.steps)


def cut_prompts(target: Target) -> Any:
    """Prompts of random numbers."""
    return prompts(windows(target))


@check("conv_verify", needs=("conv.verify",), cases=cut_prompts, features=(*EVERY_WIDTH, "silu", "bias", "drafts"))
def check_drafts_are_the_prompt(target: Target, case: PromptCase) -> None:
    """Tokens that are verified, as chains or as trees of one branch, give the bits of a prefill of all."""
    rig = Rig(target, case.setup, 2)
    xs = inputs(rig, case.tokens)
    whole = prefill(rig, xs, 1)
    for cut in case.cuts[:2]:
        for tree in (False, True) if TREES in target.offers else (False,):
            prefill(rig, part(xs, 0, cut), 2)
            what = f"verified from token {cut}{' as trees' if tree else ''}"
            equal(what, verify(rig, part(xs, cut), 2, tree=tree), part(whole, cut))
            equal_states(what, rig, 2, 1)


def reloaded(target: Target) -> Any:
    """Drafts between which weights change."""
    return reloads(windows(target), DRAFTS)


@check("conv_verify", needs=("conv.verify",), cases=reloaded, features=(*WAYS, "bias", "no bias", "several layers"))
def check_weights_are_used_as_they_are(target: Target, case: WeightCase) -> None:
    """A verify uses a layer's weights as they are when it is called, and those of the last prepare."""
    check_reloads(target, case)
