"""Dtypes and sub-pools that the reference takes, and those that it refuses: texts, and a pool left as it was."""

import pytest
import torch

import statehal
from reference.conv_oracle import refused, rig
from statehal.errors import ArgumentError, LayoutError, Unsupported
from statehal.spec import DTYPES

LOC = torch.tensor([0, 1, 2])


def x(tokens: int = 2, channels: int = 3, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.ones(tokens, channels, dtype=dtype)


def test_sub_pools_that_keep_no_slots() -> None:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([statehal.Attention("kv", (0,), 1, 4, "float32")], tokens=8, page_size=4))
    with pytest.raises(LayoutError, match=r"'kv' keeps tokens, not slots \(fix: use kv\(pool\['kv'\]\)\)"):
        hal.conv(pool["kv"])


@pytest.mark.parametrize("window", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("given", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("method", ["decode", "prefill", "verify"])
def test_a_window_takes_what_it_holds_exactly_and_an_error_names_both(method: str, window: str, given: str) -> None:
    """A float32 window holds bfloat16 and float16 inputs as they are; outputs are of the inputs' dtype."""
    made = rig(4, 3, window, state=(2, 2), state_dtype="float32")
    tokens = x(dtype=getattr(torch, given)) / 3

    def call() -> torch.Tensor:
        if method == "prefill":
            return made.conv.prefill(0, tokens, LOC, made.pick(1, 2))
        return getattr(made.conv, method)(0, tokens, made.pick(1, 2))  # type: ignore[no-any-return]

    if given == window or (window == "float32" and given != "float64"):
        assert call().dtype == tokens.dtype
        made.commit(1, 2)
        assert made.conv.read_state(made.pick(1, 2))[0, :, -1].eq(tokens).all()
        return
    text = rf"{method} .*x is torch.{given} .* expected torch.{window} "
    refused(made, ArgumentError, text, call)


@pytest.mark.parametrize("dtype", sorted({*DTYPES} - {"float32", "bfloat16", "float16"}))
def test_windows_of_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(Unsupported, match=rf"conv windows of {dtype}.*float32"):
        rig(4, 3, dtype, weights=False)
