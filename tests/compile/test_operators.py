"""Every registered operator declares what it mutates and has a fake that agrees with it."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from compile.programs import State, calls
from statehal.binding.library.operators import SCHEMAS, register
from statehal.errors import ArgumentError, StaleIds

CHECKED = sorted(calls(State()))


def registered() -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name.removeprefix("statehal::") for name in names if name.startswith("statehal::"))


def filled() -> State:
    """A state in which every operator changes a byte."""
    state = State()
    state.kv.write(0, state.ids["kv"], torch.ones(8, 2, 4), torch.ones(8, 2, 4))
    state.kv.write(0, state.ids["kv"][4:6], torch.full((2, 2, 4), 2.0), torch.full((2, 2, 4), 2.0))
    for layer in (4, 5):
        state.conv.decode(layer, torch.ones(3, 3), state.ids["conv"])
    return state


@pytest.mark.parametrize("name", CHECKED)
def test_an_operator_passes_opcheck(name: str) -> None:
    state = filled()
    args, kwargs = calls(state)[name]
    before = state.pool.buffer.clone()
    torch.library.opcheck(getattr(torch.ops.statehal, name).default, tuple(args), kwargs)
    assert torch.equal(before, state.pool.buffer), "it works on copies of its arguments"


def test_no_operator_is_left_out() -> None:
    register()
    assert sorted([*CHECKED, "refuse_ids"]) == registered() == sorted(SCHEMAS)


@pytest.mark.parametrize("name", sorted({*CHECKED} - {"conv_read_state"}))
def test_an_operator_changes_the_pool(name: str) -> None:
    """Or its opcheck says nothing about the mutation that it declares."""
    state = filled()
    before = state.pool.buffer.clone()
    args, kwargs = calls(state)[name]
    getattr(torch.ops.statehal, name).default(*args, **kwargs)
    assert not torch.equal(before, state.pool.buffer)


def test_the_refusal_is_an_operator_that_nothing_drops() -> None:
    state = State()
    _, bound = calls(state)["kv_write"][0][:2]
    key = state.pool["kv"].space("kernel").key[:4]
    state.pool.epoch += 1
    with pytest.raises(StaleIds, match="write to layer 3 of 'kv': the ids are of epoch 0 and the pool is at 1"):
        torch.ops.statehal.refuse_ids(state.pool.buffer, bound, "write", 3, list(key), 0)
    schema = torch.ops.statehal.refuse_ids.default._schema
    assert schema.is_mutable


def test_a_graph_that_outlives_its_bound_methods_says_so() -> None:
    state = State()
    args, kwargs = calls(state)["kv_write"]
    held: Any = state.kv.write
    del state.kv
    torch.ops.statehal.kv_write(*args, **kwargs)
    del held
    with pytest.raises(ArgumentError, match=r"no longer exist in this process \(fix: keep what hal.kv\(\) and hal"):
        torch.ops.statehal.kv_write(*args, **kwargs)


def test_nothing_is_registered_before_it_is_asked_for() -> None:
    program = """
import torch, statehal
names = lambda: [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("statehal::")]
def kv(**options):
    hal = statehal.bind("cpu", "reference", **options)
    pool = hal.allocate(hal.plan([statehal.Attention("kv", (0,), 1, 4, "float32")], tokens=64, page_size=4))
    return hal.kv(pool["kv"])
kv()
assert not names()
kv(compile_safe=True), kv(compile_safe=True)
assert names()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
