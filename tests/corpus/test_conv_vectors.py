"""Every conv vector agrees with the reference: outputs, and windows and cursors after the step and after the commit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import statehal
from statehal.ids import KernelIds
from statehal.layout import ConvStateLayout, conv_window
from statehal.pool import SubPool
from statehal.testing.corpus import load

Json = dict[str, Any]

VECTORS: list[Json] = load("conv-vectors")["vectors"]
LAYER = 5


@pytest.fixture
def rig(vector: Json) -> Iterator[tuple[SubPool, Any]]:
    """A sub-pool with a vector's slots, and what is bound to it; checking is on, so that bad arguments are refused."""
    spec = statehal.ConvRecurrent(
        "conv", (LAYER,), vector["channels"], vector["width"], vector["dtype"], verify_tokens=vector["verify_tokens"]
    )
    chosen = ConvStateLayout(vector["window_order"], vector["channel_multiple"], vector["protocol"])
    hal = statehal.bind("cpu", "reference", check=True)
    slots = len(vector["before"])
    pool = hal.allocate(statehal.plan([spec], tokens=1, requests=slots, layouts=lambda *_: conv_window(spec, chosen)))
    sub = pool["conv"]
    held = sub.kernel_ids(pool.alloc(slots).page_ids()).tensor
    assert held.tolist() == [one["slot"] for one in vector["before"]]
    dtype = getattr(torch, vector["dtype"])
    for one in vector["before"]:
        window(sub, one["slot"]).copy_(torch.tensor(one["window"], dtype=dtype))
        cursor(sub, one["slot"]).fill_(one["cursor"])
    conv = hal.conv(sub)
    bias = None if vector["bias"] is None else torch.tensor(vector["bias"], dtype=dtype)
    conv.prepare(LAYER, torch.tensor(vector["weight"], dtype=dtype), bias, activation=vector["activation"])
    yield sub, conv
    assert not sub.view("conv", LAYER)[0].any(), "the sink is written"


def window(sub: SubPool, slot: int) -> Tensor:
    return sub.view("conv", LAYER, "page")[slot, 0]


def cursor(sub: SubPool, slot: int) -> Tensor:
    return sub.view("cursor", LAYER, "page")[slot, 0]


def ids(sub: SubPool, slots: list[int]) -> KernelIds:
    made: KernelIds = sub.space("kernel", "pages").assume(torch.tensor(slots))
    return made


def integers(values: Any) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.int32)


def run(sub: SubPool, conv: Any, vector: Json) -> Tensor:
    """The step, by its method."""
    step = vector["step"]
    x = torch.tensor(step["x"], dtype=getattr(torch, vector["dtype"])).reshape(-1, vector["channels"])
    slots, starts = ids(sub, step["slots"]), integers(step["query_start_loc"])
    y: Tensor
    if step["method"] == "prefill":
        has = None if step["has_initial_state"] is None else torch.tensor(step["has_initial_state"])
        source = None if step["initial_slots"] is None else ids(sub, step["initial_slots"])
        y = conv.prefill(LAYER, x, starts, slots, has, initial_slots=source)
    elif step["method"] == "decode":
        y = conv.decode(LAYER, x, slots)
    else:
        y = conv.verify(LAYER, x, slots, query_start_loc=starts, parents=integers(step["parents"]))
    return y


def slots_are(sub: SubPool, said: list[Json]) -> None:
    for one in said:
        assert window(sub, one["slot"]).tolist() == one["window"], one["slot"]
        assert cursor(sub, one["slot"]).tolist() == [one["cursor"]]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_reference_does_what_a_vector_says(vector: Json, rig: tuple[SubPool, Any]) -> None:
    sub, conv = rig
    y = run(sub, conv, vector).double()
    expected = torch.tensor(vector["y"], dtype=torch.float64).reshape(y.shape)
    tolerance = vector["tolerance"]
    assert ((y - expected).abs() <= tolerance["absolute"] + tolerance["relative"] * expected.abs()).all()
    slots_are(sub, vector["after_step"])
    slots, end = ids(sub, vector["step"]["slots"]), vector["commit"]
    conv.commit(slots, integers(end["accepted"]), path=integers(end["path"]))
    slots_are(sub, vector["after_commit"])
    live = conv.read_state(ids(sub, [one["slot"] for one in vector["after_commit"]]))[0]
    assert live.tolist() == [one["live"] for one in vector["after_commit"]]
