"""The quick look at a convolution's arguments lets nothing through that the checks one by one refuse."""

import re
from typing import Any

import pytest
import torch
from test_quick_checks import others, wrong_ids
from torch import Tensor

from statehal import ConvRecurrent, bind
from statehal.arguments.conv import ConvArguments
from statehal.errors import StatehalError
from statehal.ids import KernelIds

SLOTS, CHANNELS, DRAFTS = 3, 16, 2


def fitting(method: str, slots: KernelIds) -> dict[str, Any]:
    def ones(tokens: int) -> Tensor:
        return torch.ones(tokens, CHANNELS, dtype=torch.bfloat16)

    if method == "decode":
        return {"layer": 0, "x": ones(SLOTS), "slots": slots, "out": ones(SLOTS)}
    if method == "verify":
        rest = {"query_start_loc": None, "parents": None}
        return {"layer": 0, "x": ones(SLOTS * DRAFTS), "slots": slots, "out": ones(SLOTS * DRAFTS)} | rest
    loc = torch.arange(SLOTS + 1)
    return {"layer": 0, "x": ones(SLOTS), "query_start_loc": loc, "slots": slots, "out": ones(SLOTS)}


def said(method: str) -> dict[tuple[str, int], str]:
    """Of one argument at a time what the call says of everything that may stand there."""
    hal = bind("cpu", "cpu")
    spec = ConvRecurrent("conv", (0, 2), CHANNELS, 4, "bfloat16", verify_tokens=DRAFTS)
    pool = hal.allocate(hal.plan([spec], total_bytes=1 << 18))
    conv = hal.conv(pool["conv"])
    conv.prepare(0, torch.ones(CHANNELS, 4))
    right = fitting(method, pool["conv"].kernel_ids(pool.alloc(SLOTS, "conv").page_ids()))
    found: dict[tuple[str, int], str] = {}
    for name, value in right.items():
        for at, given in enumerate(wrong_ids(value) if name == "slots" else others(value)):
            before = pool.buffer.clone()
            try:
                with torch.no_grad():
                    getattr(conv, method)(**right | {name: given})
                found[name, at] = "taken"
            except StatehalError as error:
                found[name, at] = f"{type(error).__name__}: {re.sub('in pool [0-9a-f]{8}', 'in its pool', str(error))}"
                assert torch.equal(pool.buffer, before), f"refused after bytes were stored: {error}"
    return found


@pytest.mark.parametrize("method", ["decode", "verify", "prefill"])
def test_it_says_what_they_say(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = said(method)
    monkeypatch.setattr(ConvArguments, "_plain", lambda self, layer, slots: None)
    assert quick == said(method)
    assert {"taken"} < set(quick.values())
