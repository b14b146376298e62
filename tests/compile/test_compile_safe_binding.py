"""A compile-safe binding has the same providers, checks and traces as any other."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from binding.binding_fakes import Override
from compile.programs import SLOTS, State, run, same_bytes, values
from statehal.errors import StatehalError
from statehal.reference.causal_conv1d import ReferenceCausalConv1d


def step(s: State) -> Tensor:
    s.kv.write(0, s.ids["kv"], values(8, 2, 4), values(8, 2, 4))
    y = s.conv.decode(4, values(SLOTS, 3), s.ids["conv"])
    y = s.conv.decode(5, y, s.ids["conv"])
    s.conv.commit(s.ids["conv"], torch.ones(SLOTS, dtype=torch.int32))
    return y


def test_a_binding_that_is_not_compile_safe_gives_the_providers_own_methods() -> None:
    conv: Any = State(compile_safe=False).conv
    assert conv.decode.__func__ is ReferenceCausalConv1d.decode
    safe: Any = State().conv
    assert safe.prepare.__func__ is ReferenceCausalConv1d.prepare
    assert safe.decode.__func__ is not ReferenceCausalConv1d.decode


def test_it_describes_the_same_providers() -> None:
    plain, safe = State(compile_safe=False), State()
    assert safe.hal.compile_safe
    assert safe.hal.describe(safe.pool) == plain.hal.describe(plain.pool)
    assert dict(safe.conv.providers) == dict(plain.conv.providers)  # type: ignore[attr-defined]
    assert safe.conv.graph_capturable == plain.conv.graph_capturable


class Doubling:
    """A site's decode, with weights of its own."""

    def __init__(self) -> None:
        self.weights: dict[int, Tensor] = {}

    def prepare(self, layer: int, weight: Tensor, bias: Any = None, *, activation: Any = None) -> None:
        self.weights[layer] = weight

    def decode(self, layer: int, x: Tensor, slots: Any, *, out: Tensor) -> Tensor:
        return out.copy_(x * self.weights[layer].sum())


def test_operators_call_whatever_was_merged() -> None:
    site = Doubling()
    plain = State(compile_safe=False, plugins={"site": Override(conv=Doubling())})
    state = State(plugins={"site": Override(conv=site)})
    assert sorted(site.weights) == [4, 5]
    x, out = values(SLOTS, 3), torch.zeros(SLOTS, 3)
    got = run(lambda s: s.conv.decode(4, x, s.ids["conv"]), state)
    assert torch.equal(got, plain.conv.decode(4, x, plain.ids["conv"], out=out))
    assert state.conv.providers["decode"] == "site"  # type: ignore[attr-defined]
    state.conv.prepare(4, torch.ones(3, 4))
    assert torch.equal(run(lambda s: s.conv.decode(4, x, s.ids["conv"]), state), x * 12)


def test_weights_prepared_again_are_used_by_a_graph_that_exists() -> None:
    state, x = State(), values(SLOTS, 3)
    torch._dynamo.reset()

    def decode(s: State) -> Tensor:
        return s.conv.decode(4, x, s.ids["conv"])

    program: Any = torch.compile(decode, backend="aot_eager", fullgraph=True)
    first = program(state)
    state.conv.prepare(4, values(3, 4, seed=9))
    second = program(state)
    plain = State(compile_safe=False)
    assert torch.equal(first, plain.conv.decode(4, x, plain.ids["conv"]))
    plain.conv.prepare(4, values(3, 4, seed=9))
    assert torch.equal(second, plain.conv.decode(4, x, plain.ids["conv"]))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("compiled", [False, True])
def test_under_check(compiled: bool) -> None:
    plain, state = State(compile_safe=False), State(check=True)
    for _ in range(2):
        want = step(plain)
        got = run(step, state) if compiled else step(state)
        assert torch.equal(want, got)
    assert same_bytes(plain, state)

    def twice(s: State) -> None:
        slots = s.ids["conv"].reshape(SLOTS)[[0, 0, 1]]
        s.conv.decode(4, values(SLOTS, 3), slots)

    with pytest.raises(StatehalError, match="twice"):
        run(twice, state) if compiled else twice(state)
    assert same_bytes(plain, state)


def test_spans_are_recorded_when_a_graph_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATEHAL_TRACE", str(tmp_path / "trace.json"))
    state = State()
    torch._dynamo.reset()
    program: Any = torch.compile(step, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        program(state)
    from statehal import trace

    tracer: Any = trace.current()
    tracer.close()
    events = json.loads((tmp_path / "trace.json").read_text())
    names = [event["name"] for event in (events["traceEvents"] if isinstance(events, dict) else events)]
    assert {name: names.count(name) for name in ("kv.write", "conv.decode", "conv.commit")} == {
        "kv.write": 3,
        "conv.decode": 6,
        "conv.commit": 3,
    }
    assert "FakeTensor" not in (tmp_path / "trace.json").read_text()
