"""Under ``torch.compile`` a compile-safe binding leaves the bytes that a plain one leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from statehal.binding.library.exchange import COPIED
from statehal.testing.check import check
from statehal.testing.operations import Operations
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.quiet import unlogged
from statehal.testing.target import Target

Program = Callable[[Operations], list[Tensor]]


@dataclass(frozen=True)
class Step:
    """A part of a program, with the method that it needs."""

    method: str
    run: Callable[[Operations], Tensor | None]


def _rope(m: Operations) -> Tensor:
    given = m.inputs
    ids = m.tables["kv"][:8]
    return m.kv.rope_write(
        1, ids, given["q"][:8], given["k"][:8], given["v"][:8], given["positions"][:8], given["cos_sin"]
    )


def _latent(m: Operations) -> None:
    m.mla.write_latent(2, m.tables["mla"][:8], m.inputs["kv_c"][:8], m.inputs["k_pe"][:8])


KV = (
    Step("kv.write", lambda m: m.kv.write(0, m.tables["kv"][:8], m.inputs["k"][:8], m.inputs["v"][:8])),
    Step("kv.move", lambda m: m.kv.move(m.tables["kv"][2:6], m.tables["kv"][:4])),
    Step("kv.rope_write", _rope),
    Step("kv.write", lambda m: m.kv.write(1, m.tables["kv"][6:8], m.inputs["k"][:2], m.inputs["v"][:2])),
    Step("kv.write_latent", _latent),
    Step("kv.move", lambda m: m.mla.move(m.tables["mla"][8:10], m.tables["mla"][:2])),
)  # fmt: skip
"""Writes whose results nobody uses; layers, rows and sub-pools overlap, so order counts."""


def _each(method: str, run: Callable[[Operations, int], Tensor | None]) -> Step:
    """In both layers; the result of the last."""

    def both(m: Operations) -> Tensor | None:
        run(m, 3)
        return run(m, 4)

    return Step(method, both)


def _prefill(m: Operations, layer: int) -> Tensor:
    return m.conv.prefill(layer, m.inputs["x"][:6], m.inputs["starts"][:4], m.tables["conv"][:3])


CONV = (
    _each("conv.prefill", _prefill),
    Step("conv.commit", lambda m: m.conv.commit(m.tables["conv"][:3], m.inputs["ones"][:3])),
    _each("conv.decode", lambda m, n: m.conv.decode(n, m.inputs["x"][4:7], m.tables["conv"][:3])),
    Step("conv.commit", lambda m: m.conv.commit(m.tables["conv"][:3], m.inputs["ones"][:3])),
    Step("conv.read_state", lambda m: m.conv.read_state(m.tables["conv"][:3])),
    _each("conv.verify", lambda m, n: m.conv.verify(n, m.inputs["x"][2:8], m.tables["conv"][:3])),
    Step("conv.commit", lambda m: m.conv.commit(m.tables["conv"][:3], m.inputs["accepted"][:3])),
    Step("conv.copy_slots", lambda m: m.conv.copy_slots(m.tables["conv"][:2], m.tables["conv"][3:5])),
    Step("conv.zero_slots", lambda m: m.conv.zero_slots(m.tables["conv"][2:3])),
)  # fmt: skip
"""Three steps, each with its commit, then slots copied and emptied."""


def _program(target: Target, steps: tuple[Step, ...]) -> Program:
    own = [step.run for step in steps if step.method in target.providers]

    def program(made: Operations) -> list[Tensor]:
        results = [run(made) for run in own]
        return [result for result in results if result is not None]

    return program


def _judge(target: Target, steps: tuple[Step, ...]) -> None:
    program = _program(target, steps)

    def unused(made: Operations) -> None:
        program(made)

    plain = Operations(target, 8)
    outputs = program(plain)
    wanted = target.image(plain.pool)
    assert any(wanted), "the program that was not compiled changed no byte"
    for how, run in (("its outputs unused", unused), ("its outputs used", program)):
        made = Operations(target, 8, compile_safe=True)
        torch._dynamo.reset()
        compiled: Any = torch.compile(run, backend="aot_eager", fullgraph=True)
        with unlogged(lambda record: record.msg == COPIED):  # which is what is judged here
            found = compiled(made)
        different = first_difference(made.pool, wanted, target.image(made.pool))
        assert not different, f"compiled as one graph, {how}: {different}"
        for n, (one, other) in enumerate(zip(outputs, found or [], strict=False)):
            assert torch.equal(one, other), f"compiled as one graph: result {n} is {other}, expected {one}"


@check("compile_safety", needs=("kv.write",))
def check_compiled_writes_are_kept(target: Target) -> None:
    """Writes, moves and rotations in a compiled graph leave, byte for byte, what they leave uncompiled."""
    _judge(target, KV)


@check("compile_safety", needs=("conv.decode",))
def check_compiled_steps_are_kept(target: Target) -> None:
    """Steps, commits and slot operations in a compiled graph leave, byte for byte, what they leave uncompiled."""
    _judge(target, CONV)
