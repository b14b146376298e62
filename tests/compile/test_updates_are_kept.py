"""A compiled program leaves the bytes that the uncompiled one leaves, whatever is made of the outputs."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor

from compile.programs import SLOTS, State, run, same_bytes, values

Program = Callable[..., Any]


def write_move_write(s: State) -> None:
    k, v, ids = values(8, 2, 4), values(8, 2, 4, seed=1), s.ids["kv"]
    s.kv.write(0, ids, k, v)
    s.kv.move(ids[2:4], ids[0:2])
    s.kv.write(0, ids[0:3], v[5:8], k[5:8])
    s.kv.move(ids[1:4], ids[0:3])


def two_subpools(s: State) -> None:
    rows, half = values(8, 2, 4), values(8, 1, 8, dtype=torch.bfloat16)
    s.kv.write(0, s.ids["kv"], rows, -rows)
    s.half.write(2, s.ids["half"], half, -half)
    s.kv.write(1, s.ids["kv"], -rows, rows)
    s.mla.write_latent(3, s.ids["mla"], values(8, 8), values(8, 4))
    s.half.move(s.ids["half"][:2], s.ids["half"][2:4])


def decode_unused(s: State) -> None:
    for step in range(3):
        for layer in (4, 5):
            s.conv.decode(layer, values(SLOTS, 3, seed=step), s.ids["conv"])
        s.conv.commit(s.ids["conv"], torch.ones(SLOTS, dtype=torch.int32))


def prefill_verify_commit(s: State) -> tuple[Tensor, Tensor]:
    x, slots, none = values(5, 3), s.ids["conv"], torch.tensor([False, False, False])
    saved = (torch.tensor([0]), torch.tensor([1]), s.spare[:1])
    for layer in (4, 5):
        s.conv.prefill(layer, x, torch.tensor([0, 2, 3, 5]), slots, none, snapshots=saved)
    s.conv.commit(slots, torch.ones(SLOTS, dtype=torch.int32))
    before = s.conv.read_state(slots)
    for layer in (4, 5):
        x = s.conv.verify(layer, x[:3].repeat(2, 1), slots)
    s.conv.commit(slots, torch.tensor([1, 2, 2]))
    s.conv.copy_slots(slots[:2], s.spare[:2])
    s.conv.zero_slots(slots[2:])
    return before, s.conv.read_state(slots)


def rope_in_place(s: State) -> Tensor:
    """Where q and k are views of one packed tensor, and rotated where they lie."""
    packed = values(8, 4, 4).clone()
    q, k = packed[:, :2], packed[:, 2:]
    s.kv.rope_write(0, s.ids["kv"], q, k, values(8, 2, 4), torch.arange(8), values(16, 4), q_out=q, k_out=k)
    return packed


def rope_new(s: State) -> Tensor:
    q, k, positions = values(8, 2, 4), values(8, 2, 4, seed=1), torch.arange(8).repeat(3, 1)
    return s.kv.rope_write(0, s.ids["kv"], q, k, k, positions, values(16, 4), rope_sections=(1, 1, 0), q_norm=values(4))


def out_is_x(s: State) -> tuple[Tensor, Tensor]:
    x, out = values(SLOTS, 3).clone(), torch.zeros(SLOTS, 3)
    assert s.conv.decode(4, x, s.ids["conv"], out=x) is x
    assert s.conv.decode(5, x, s.ids["conv"], out=out) is out
    s.conv.commit(s.ids["conv"], torch.ones(SLOTS, dtype=torch.int32))
    return x, out


PROGRAMS = (
    write_move_write,
    two_subpools,
    decode_unused,
    prefill_verify_commit,
    rope_in_place,
    rope_new,
    out_is_x,
)


def outputs(result: Any) -> list[Tensor]:
    return [] if result is None else [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_compiled_and_plain_programs_leave_equal_bytes(program: Program) -> None:
    plain, uncompiled, compiled = State(compile_safe=False), State(), State()
    want, eager, got = program(plain), program(uncompiled), run(program, compiled)
    assert int(plain.pool.buffer.count_nonzero()) > 50
    assert same_bytes(plain, uncompiled)
    assert same_bytes(plain, compiled)
    for one, two, three in zip(outputs(want), outputs(eager), outputs(got), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_in_modes_without_gradients(mode: Callable[[], AbstractContextManager[None]]) -> None:
    plain, compiled = State(compile_safe=False), State()
    with mode():
        for program in (two_subpools, decode_unused):
            program(plain)
            run(program, compiled)
    assert same_bytes(plain, compiled)
    for state in (plain, compiled):  # and outside of the mode, on the same pool
        write_move_write(state)
    assert same_bytes(plain, compiled)


def test_inputs_that_require_gradients() -> None:
    """Operations are no part of the autograd graph: outputs require none, and nothing warns."""
    plain, compiled = State(compile_safe=False), State()
    x = values(SLOTS, 3).requires_grad_()
    rows = values(8, 2, 4).requires_grad_()

    def program(s: State) -> Tensor:
        s.kv.write(0, s.ids["kv"], rows * 2, rows)
        return s.conv.decode(4, x * 2, s.ids["conv"])

    want, got = program(plain), run(program, compiled)
    assert torch.equal(want, got)
    assert not want.requires_grad
    assert not got.requires_grad
    assert not compiled.pool.buffer.requires_grad
    assert same_bytes(plain, compiled)


@pytest.mark.parametrize("name", ["number", "tensor"])
def test_scales_as_numbers_and_tensors(name: str) -> None:
    """Of what a writer is given: the operator passes a number on as a number."""
    seen: list[Any] = []

    class Writer:
        def write(self, layer: int, ids: Any, k: Tensor, v: Tensor, **scales: Any) -> None:
            seen.append(scales)

    from binding.binding_fakes import Override

    state = State(plugins={"site": Override(kv=Writer())})
    scale: Any = 0.5 if name == "number" else torch.tensor([0.5])

    def program(s: State) -> None:
        s.kv.write(0, s.ids["kv"], values(8, 2, 4), values(8, 2, 4), k_scale=scale)

    run(program, state)
    assert len(seen) == 1
    assert list(seen[0]) == ["k_scale"]
    assert seen[0]["k_scale"] == 0.5
    assert isinstance(seen[0]["k_scale"], float if name == "number" else Tensor)


def test_an_operator_that_hides_its_mutation_loses_the_update() -> None:
    """What the schemas are for, and that these tests would see it: without ``(a!)`` the state is lost."""
    from statehal.binding.library.kv_operators import SCHEMAS, kv_write

    library = torch.library.Library("statehal_mutant", "DEF")
    library.define("write" + SCHEMAS["kv_write"].replace("(a!)", ""))
    library.impl("write", kv_write, "CompositeExplicitAutograd")
    torch.library.register_fake("statehal_mutant::write", lambda *args, **kwargs: None, lib=library)
    state = State()
    empty = state.pool.buffer.clone()
    bound = state.kv.write.__self__._bound  # type: ignore[attr-defined]
    scales = {"k_scale": None, "v_scale": None, "k_number": None, "v_number": None}

    def program(s: State) -> None:
        rows = values(8, 2, 4)
        torch.ops.statehal_mutant.write(s.pool.buffer, bound, 0, list(s.ids["kv"].tensors), rows, rows, **scales)

    run(program, state)
    assert torch.equal(state.pool.buffer, empty)
    program(state)
    assert not torch.equal(state.pool.buffer, empty)
