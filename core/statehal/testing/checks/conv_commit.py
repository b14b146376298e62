"""``CausalConv1d.commit``."""

from dataclasses import replace
from typing import Any

from statehal.errors import LayoutError
from statehal.hookspecs.capabilities import REPLAY, SNAPSHOTS, TRACKING, TREES
from statehal.testing.check import check
from statehal.testing.conv.cases import RunCase, runs
from statehal.testing.conv.replay import ReplayRun, with_ring
from statehal.testing.conv.requests import Mix
from statehal.testing.conv.sequential import SequentialRun
from statehal.testing.conv.setups import windows
from statehal.testing.conv.watched import WatchedRun
from statehal.testing.target import Target

ALL = ("verify", "verify", "verify", "verify", "prefill", "decode")
EVERY_WIDTH = tuple(f"width {width}" for width in range(2, 9))
COUNTS = ("all accepted", "some accepted", "one of several accepted")
FEATURES = (
    *COUNTS, "ragged drafts", "full drafts", "one token a step", "a decode", "an empty sequence", "padding",
    "recurrent state", "no recurrent state", "several layers", "a view of a bigger pool", "int32", "int64",
)  # fmt: skip


def chains(target: Target) -> Any:
    """Rounds of prompts, decodes and drafts in chains."""
    return runs(windows(target), Mix(ALL), 3)


@check("conv_commit", needs=("conv.commit",), cases=chains, features=(*EVERY_WIDTH, *FEATURES, "silu", "bias"))
def check_drafts_leave_what_sequential_decode_leaves(target: Target, case: RunCase) -> None:
    """After a commit outputs and live rows have the bits of the same backend's decode of the accepted tokens alone."""
    run = SequentialRun(target, case.setup)
    run.rounds(case.steps)
    run.decode_twice()


def trees(target: Target) -> Any:
    """Rounds whose drafts are trees."""
    return runs(windows(target), Mix(ALL, trees=True), 3, drafts=(2, 3, 4, 5, 8))


@check(
    "conv_commit",
    needs=("conv.commit", TREES),
    cases=trees,
    features=(*EVERY_WIDTH, *COUNTS, "a tree", "recurrent state", "padding", "several layers"),
)
def check_a_path_leaves_what_sequential_decode_leaves(target: Target, case: RunCase) -> None:
    """A commit of a tree's path leaves what decode of its rows leaves, with state_slots in the order of the step."""
    run = SequentialRun(target, case.setup)
    run.rounds(case.steps)
    run.decode_twice()


def tracks(target: Target) -> Any:
    """Rounds in which checkpoints are tracked; trees among the drafts where the backend has them."""
    mix = Mix(ALL, trees=TREES in target.offers, tracking=True)
    return runs(windows(target), mix, 2, drafts=(1, 2, 3, 4, 8))


@check(
    "conv_commit",
    needs=("conv.commit", TRACKING),
    cases=tracks,
    features=("tracked", "tracked at fewer than accepted", "not tracked", "recurrent state", "padding", "a decode"),
)
def check_tracked_slots_are_whole_checkpoints(target: Target, case: RunCase) -> None:
    """A tracked slot receives window, cursor and recurrent rows as a commit of track_accepted tokens leaves them."""
    run = SequentialRun(target, case.setup)
    for step in case.steps:
        run.round(step)
        run.decode_twice()  # a checkpoint goes on as the request would have


def everything(target: Target) -> Any:
    """Rounds of everything that the backend claims."""
    trees, tracking, snapshots = (tag in target.offers for tag in (TREES, TRACKING, SNAPSHOTS))
    return runs(windows(target), Mix(ALL, trees, tracking, snapshots), 3)


@check("conv_commit", needs=("conv.commit",), cases=everything, features=FEATURES)
def check_cursors_follow_the_protocol_and_nothing_else_changes(target: Target, case: RunCase) -> None:
    """A commit moves cursor and live rows of its slots by the layout's protocol and changes no byte of another slot."""
    WatchedRun(target, case.setup).rounds(case.steps)


@check(
    "conv_commit",
    needs=("conv.commit", REPLAY),
    cases=everything,
    features=(*COUNTS, "an empty sequence", "a decode", "padding", "recurrent state", "several layers", "drafts"),
)
def check_replay_inputs_end_at_the_newest_live_row(target: Target, case: RunCase) -> None:
    """After a commit of a tokens their inputs end at live row W-2 of the replay ring; a chain moves none of them."""
    steps = [replace(step, requests=[replace(one, snapshots=[]) for one in step.requests]) for step in case.steps]
    try:
        run = ReplayRun(target, with_ring(case.setup))
    except LayoutError as error:
        raise AssertionError(f"{target.backend!r} claims {REPLAY!r}, and its window is not for it: {error}") from error
    run.rounds(tuple(steps))
