"""The checks of conv judge a backend by the layout that it answers: the reference passes them with any."""

from typing import Literal

import pytest

from conformance.mutant import MutantBackend, target
from statehal.hookspecs import CAPABILITIES, IDS64
from statehal.hookspecs.capabilities import REPLAY
from statehal.layout import ConvStateLayout
from statehal.testing import CHECKS, Check, run_check

Protocol = Literal["ring", "offset", "rollback"]
TOPICS = ("conv_prefill", "conv_decode", "conv_verify", "conv_commit", "conv_slots", "conv_arguments")
WINDOWS = {
    "ring": ConvStateLayout("channels_first", 8, "ring", ("block",)),
    "offset": ConvStateLayout("channels_first", 4, "offset"),
    "rollback": ConvStateLayout("rows_first", 8, "rollback", ("row",), 64),
}


def backend(window: str) -> MutantBackend:
    tags = CAPABILITIES - {IDS64} - ({REPLAY} if window != "ring" else set())
    return MutantBackend(conv_layout=lambda made, request: WINDOWS[window], info={"capabilities": tags})


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    "check", [one for one in CHECKS.values() if one.topic in TOPICS], ids=lambda check: str(check.name)
)
def test_the_reference_passes_with_every_window(check: Check, window: str) -> None:
    judged = target(backend(window))
    if judged.lacks(check.needs):
        assert REPLAY in check.needs
        return
    result = run_check(check, judged, profile_name="dev", shrink=False)
    assert result.status == "passed", result.message


@pytest.mark.parametrize("window", ["offset", "rollback"])
def test_a_claim_of_replay_rings_without_a_ring_is_a_failure(window: str) -> None:
    judged = target(MutantBackend(conv_layout=lambda made, request: WINDOWS[window]))
    check = CHECKS["conv_commit/replay_inputs_end_at_the_newest_live_row"]
    result = run_check(check, judged, profile_name="dev", shrink=False)
    assert (result.status, result.by) == ("failed", "assertion")
    assert "claims 'replay', and its window is not for it: spec 'conv' has a replay ring" in result.message
