"""One graph serves all batch sizes, layers and epochs; ids that it does not serve are refused before it runs."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from compile.programs import State, values
from statehal import KernelIds
from statehal.errors import StaleIds, WrongIdSpace

HELD: dict[str, Any] = {}


def write(s: State, layer: int, ids: KernelIds, rows: Tensor) -> None:
    s.kv.write(layer, ids, rows, -rows)


def compiled(**options: Any) -> tuple[Any, CompileCounterWithBackend]:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(write, backend=counter, fullgraph=True, **options), counter


def stored(s: State, layer: int, ids: KernelIds) -> Tensor:
    return s.pool["kv"].view("k", layer)[ids.tensor]


@pytest.mark.parametrize("dynamic", [None, False])
def test_compactions_cost_no_graph(dynamic: bool | None) -> None:
    state = State()
    program, counter = compiled(dynamic=dynamic)
    for step in range(5):
        rows = values(8, 2, 4, seed=step)
        program(state, 0, state.ids["kv"], rows)
        assert torch.equal(stored(state, 0, state.ids["kv"]), rows)
        state.pool.epoch += 1
        state.translate()
    assert counter.frame_count == 1


def test_a_real_compaction() -> None:
    """Ids of before are refused, and the copy of the page that moved comes before the next write to it."""
    state = State()
    sub = state.pool["half"]
    *others, keep = [sub.alloc(4) for _ in range(8)]
    ids = sub.kernel_ids(keep.token_ids())
    rows = values(4, 1, 8, dtype=torch.bfloat16)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")

    def write_half(s: State, ids: KernelIds, rows: Tensor) -> None:
        s.half.write(2, ids, rows, -rows)

    program: Any = torch.compile(write_half, backend=counter, fullgraph=True)
    program(state, ids, rows)
    sub.free(others)
    assert state.pool.compact(100).moves
    with pytest.raises(StaleIds, match="write to layer 2 of 'half': the ids are of epoch 0 and the pool is at 1"):
        program(state, ids, rows)
    assert state.pool.pending
    moved = sub.kernel_ids(keep.token_ids())
    assert not torch.equal(moved.tensor, ids.tensor)
    assert torch.equal(sub.view("k", 2)[moved.tensor], rows)
    program(state, moved, -rows)
    assert torch.equal(sub.view("k", 2)[moved.tensor], -rows)
    assert counter.frame_count == 2  # one of them refuses


@pytest.mark.parametrize("copied", [False, True])
def test_stale_ids_are_refused_and_fresh_ones_are_not(copied: bool) -> None:
    """Also where they were unpickled, and know their pool by name alone."""
    import copy

    state = State()
    program, counter = compiled()
    for epoch in range(4):
        ids = copy.deepcopy(state.ids["kv"]) if copied else state.ids["kv"]
        rows = values(8, 2, 4, seed=epoch)
        program(state, 0, ids, rows)
        assert torch.equal(stored(state, 0, ids), rows)
        state.pool.epoch += 1
        before = state.pool.buffer.clone()
        with pytest.raises(StaleIds, match=f"the ids are of epoch {epoch} and the pool is at {epoch + 1}"):
            program(state, 0, ids, -rows)
        assert torch.equal(before, state.pool.buffer)
        state.translate()
    assert counter.frame_count <= 6


def test_ids_of_other_spaces_are_refused() -> None:
    state, other = State(), State()
    program, _ = compiled()
    rows = values(8, 2, 4)
    program(state, 0, state.ids["kv"], rows)
    before = state.pool.buffer.clone()
    wrong: dict[str, Any] = {
        "a bare Tensor, of which nothing says what it counts": state.ids["kv"].tensor,
        "kernel tokens of 'kv' in pool " + other.pool.fingerprint[:8]: other.ids["kv"],
        "kernel tokens of 'half' in pool " + state.pool.fingerprint[:8]: state.ids["half"],
        "virtual tokens of 'tokens' in pool ": state.pages.token_ids(),
        "kernel pages of 'conv' in pool ": state.ids["conv"],
    }
    for text, ids in wrong.items():
        with pytest.raises(WrongIdSpace, match="write to layer 1 of 'kv' takes kernel tokens of 'kv' .* given " + text):
            program(state, 1, ids, rows)
        with pytest.raises(WrongIdSpace, match="write to layer 1 of 'kv' takes kernel tokens of 'kv' .* given " + text):
            state.kv.write(1, ids, rows, rows)
    assert torch.equal(before, state.pool.buffer)
    program(state, 0, state.ids["kv"], -rows)
    assert torch.equal(stored(state, 0, state.ids["kv"]), -rows)


def test_ids_are_told_apart_where_the_methods_are_no_argument() -> None:
    """Torch does not guard that an object of an argument and one of a global are the same."""
    state, other = State(), State()
    HELD["kv"] = state.kv
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def program(ids: KernelIds, rows: Tensor) -> None:
        HELD["kv"].write(0, ids, rows, -rows)

    rows = values(8, 2, 4)
    program(state.ids["kv"], rows)
    with pytest.raises(WrongIdSpace, match="given kernel tokens of 'kv' in pool " + other.pool.fingerprint[:8]):
        program(other.ids["kv"], rows)
    state.pool.epoch += 1
    with pytest.raises(StaleIds):
        program(state.ids["kv"], rows)


def test_batch_sizes_and_layers_share_graphs() -> None:
    """Sizes become symbols, and so do layers, so that one compiled layer serves a whole model."""
    state = State()
    program, counter = compiled()
    for layer in (0, 1):
        for count in (2, 3, 5, 7, 8):
            rows = values(count, 2, 4, seed=count)
            program(state, layer, state.ids["kv"][:count], rows)
            assert torch.equal(stored(state, layer, state.ids["kv"][:count]), rows)
    assert counter.frame_count <= 4
    few = counter.frame_count
    for layer in range(2, 9):
        with pytest.raises(ValueError, match=f"no layer {layer} here: the sub-pool's layers are"):
            program(state, layer, state.ids["kv"][:3], values(3, 2, 4))
    assert counter.frame_count <= few + 1


def test_a_renewed_buffer_of_ids_stays_one_graph() -> None:
    state = State()
    sub = state.pool["kv"]
    out = sub.kernel_buffer(8)
    part = out[:4]
    program, counter = compiled()
    for step in range(3):
        sub.kernel_ids(state.pages.token_ids(), out)
        rows = values(4, 2, 4, seed=step)
        program(state, 0, part, rows)
        assert torch.equal(stored(state, 0, part), rows)
        state.pool.epoch += 1
    assert counter.frame_count == 1
    with pytest.raises(StaleIds):
        program(state, 0, part, rows)


def test_pools_and_sub_pools_share_graphs() -> None:
    """A layer that is compiled once serves a spec a layer, and a pool that is made anew."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    program: Any = torch.compile(write, backend=counter, fullgraph=True)
    for _ in range(10):
        state = State()
        rows = values(8, 2, 4)
        program(state, 0, state.ids["kv"], rows)
        assert torch.equal(stored(state, 0, state.ids["kv"]), rows)
    assert counter.frame_count <= 2
