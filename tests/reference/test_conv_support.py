"""What the reference does not offer, and what it refuses under check: texts, and a pool left as it was."""

import pytest
import torch

import statehal
from reference.conv_oracle import Rig, refused, rig
from statehal.errors import ArgumentError, LayoutError, Unsupported
from statehal.layout import ConvStateLayout
from statehal.spec import DTYPES

LOC = torch.tensor([0, 1, 2])


def x(tokens: int = 2, channels: int = 3, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.ones(tokens, channels, dtype=dtype)


@pytest.fixture
def made() -> Rig:
    return rig(4, 3, "bfloat16", layers=(0, 2), state=(2, 2))


@pytest.mark.parametrize("option", ["path", "state_slots", "track_slots", "track_accepted"])
def test_options_of_commit_that_are_not_offered(made: Rig, option: str) -> None:
    value = made.pick(1, 2) if option.endswith("slots") else torch.ones(2, dtype=torch.int64)
    text = rf"commit of 'conv': the reference backend does not offer {option} \(fix: leave it out"
    ones = torch.ones(2, dtype=torch.int64)
    refused(made, Unsupported, text, lambda: made.conv.commit(made.pick(1, 2), ones, **{option: value}))  # type: ignore[arg-type]


def test_snapshots_and_verify_are_not_offered(made: Rig) -> None:
    points = (torch.tensor([0]), torch.tensor([1]), made.pick(3))
    text = "prefill of layer 0 of 'conv': the reference backend does not offer snapshots"
    refused(made, Unsupported, text, lambda: made.conv.prefill(0, x(), LOC, made.pick(1, 2), snapshots=points))
    text = r"no plugin offers verify: statehal_causal_conv1d was asked of reference \(fix: install one\)"
    refused(made, Unsupported, text, lambda: made.conv.verify(0, x(), made.pick(1, 2)))


def test_sub_pools_and_protocols_that_do_not_fit() -> None:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([statehal.Attention("kv", (0,), 1, 4, "float32")], tokens=8, page_size=4))
    with pytest.raises(LayoutError, match=r"'kv' keeps tokens, not slots \(fix: use kv\(pool\['kv'\]\)\)"):
        hal.conv(pool["kv"])
    with pytest.raises(Unsupported, match=r"does not offer the 'rollback' protocol, only \['offset', 'ring'\]"):
        rig(window=ConvStateLayout(protocol="rollback"))


@pytest.mark.parametrize("window", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("given", ["float32", "bfloat16", "float16", "float64"])
def test_x_is_of_the_windows_dtype_and_an_error_names_both(window: str, given: str) -> None:
    made = rig(4, 3, window, state=(2, 2), state_dtype="float32")
    tokens = x(dtype=getattr(torch, given))
    if window == given:
        assert made.conv.decode(0, tokens, made.pick(1, 2)).dtype == tokens.dtype
        return
    text = rf"x is torch.{given} .* expected torch.{window} "
    refused(made, ArgumentError, text, lambda: made.conv.decode(0, tokens, made.pick(1, 2)))


@pytest.mark.parametrize("dtype", sorted({*DTYPES} - {"float32", "bfloat16", "float16"}))
def test_windows_of_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(Unsupported, match=rf"conv windows of {dtype}.*float32"):
        rig(4, 3, dtype, weights=False)


def test_overlapping_slots_are_errors_under_check() -> None:
    made = rig(4, 3, "bfloat16", check=True)
    ones, yes = torch.ones(4, dtype=torch.int64), torch.tensor([True] * 4)
    loc = torch.arange(5)
    twice, distinct = made.pick(1, 2, -1, 2), made.pick(1, 2, -1, -1)
    text = r"slots name slot \d+ twice"
    refused(made, ArgumentError, "decode of layer 0 of 'conv': " + text, lambda: made.conv.decode(0, x(4), twice))
    refused(made, ArgumentError, "prefill.*" + text, lambda: made.conv.prefill(0, x(4), loc, twice))
    refused(made, ArgumentError, "commit of 'conv': " + text, lambda: made.conv.commit(twice, ones))
    refused(made, ArgumentError, "dst name slot", lambda: made.conv.copy_slots(made.pick(3, 3, 3, 3), twice))
    across = made.pick(2, 1, -1, 3)
    text = r"initial_slots read slot \d+, which another sequence writes"
    slots = made.pick(1, 2, 3, 4)
    refused(made, ArgumentError, text, lambda: made.conv.prefill(0, x(4), loc, slots, yes, initial_slots=across))
    made.conv.prefill(0, x(4), loc, made.pick(1, 2, 3, 4), yes, initial_slots=made.pick(1, 5, 5, 4))
    made.conv.decode(0, x(4), distinct)
    made.conv.commit(distinct, ones)
    made.conv.copy_slots(twice, made.pick(3, 4, 5, 6))
