"""What functionalisation costs: nothing of the buffer's size where inductor mutates in place; else copies, undone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from compile.programs import SLOTS, State, same_bytes, values
from statehal.binding.library import exchange as exchanging
from statehal.binding.library.exchange import exchange
from statehal.errors import ArgumentError


def program(s: State, rows: Tensor, x: Tensor, out: Tensor, ones: Tensor) -> Tensor:
    s.kv.write(0, s.ids["kv"], rows, rows)
    s.kv.move(s.ids["kv"][2:4], s.ids["kv"][0:2])
    s.kv.write(1, s.ids["kv"], rows, rows)
    s.conv.decode(4, x, s.ids["conv"], out=out)
    s.conv.decode(5, out, s.ids["conv"])
    s.conv.commit(s.ids["conv"], ones)
    s.conv.decode(4, x, s.ids["conv"])
    return s.conv.read_state(s.ids["conv"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when it loads inductor
def test_inductor_copies_no_buffer() -> None:
    from torch._inductor.utils import run_and_get_code

    plain, state = State(compile_safe=False), State()
    inputs = [(values(8, 2, 4), values(SLOTS, 3), torch.zeros(SLOTS, 3), torch.ones(SLOTS).int()) for _ in range(2)]
    want = program(plain, *inputs[0])
    torch._dynamo.reset()
    got, codes = run_and_get_code(torch.compile(program, backend="inductor", fullgraph=True), state, *inputs[1])
    assert torch.equal(want, got)
    assert torch.equal(inputs[0][2], inputs[1][2])
    assert same_bytes(plain, state)
    (code,) = codes
    body = code[code.index("def call(") : code.index("return (")]
    assert sum("torch.ops.statehal." in line and "(arg" in line for line in body.splitlines()) == 8
    size = str(state.pool.buffer.numel())
    assert all("assert_size_stride" in line for line in body.splitlines() if size in line)
    assert ".copy_(" not in body
    assert "clone" not in body


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when it loads inductor
def test_inductor_copies_no_buffer_for_a_read_between_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is used after the next update: a read that looks free of effects would be moved past it."""

    def program(s: State, x: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
        s.conv.decode(4, x, s.ids["conv"])
        s.conv.decode(5, x, s.ids["conv"])
        s.conv.commit(s.ids["conv"], ones)
        before = s.conv.read_state(s.ids["conv"])
        s.conv.decode(4, x, s.ids["conv"])
        after = s.conv.read_state(s.spare)
        s.conv.decode(5, x, s.ids["conv"])
        return before.float().sum(0), after.float().sum(0)

    exchanges: list[int] = []
    monkeypatch.setattr(exchanging, "_warn", exchanges.append)
    plain, state = State(compile_safe=False), State()
    x, ones = values(SLOTS, 3), torch.ones(SLOTS).int()
    want = program(plain, x, ones)
    torch._dynamo.reset()
    got: Any = torch.compile(program, backend="inductor", fullgraph=True)(state, x, ones)
    assert all(map(torch.equal, want, got))
    assert same_bytes(plain, state)
    assert not exchanges


def test_bytes_change_places_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanging, "CHUNK_BYTES", 7)
    one, two = torch.arange(40, dtype=torch.uint8), torch.arange(40, 80, dtype=torch.uint8)
    first, second = one.clone(), two.clone()
    with exchange(one, two):
        assert torch.equal(one, second)
        assert torch.equal(two, first)
        one[3] = 200
    assert torch.equal(one, first)
    second[3] = 200
    assert torch.equal(two, second)


def test_an_operator_that_raises_leaves_the_pool_as_it_was() -> None:
    state = State()
    state.kv.write(0, state.ids["kv"], values(8, 2, 4), values(8, 2, 4))
    before = state.pool.buffer.clone()
    copy = torch.zeros_like(before)
    bound = state.kv.write.__self__._bound  # type: ignore[attr-defined]
    rows, scales = values(8, 2, 4), {"k_scale": None, "v_scale": None, "k_number": None, "v_number": None}
    with pytest.raises(ArgumentError, match="no layer 9"):
        torch.ops.statehal.kv_write(copy, bound, 9, list(state.ids["kv"].tensors), rows, rows, **scales)
    assert torch.equal(state.pool.buffer, before)
    assert not copy.any()
