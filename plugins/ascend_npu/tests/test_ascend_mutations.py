"""An operator that mutates without declaring it loses its update in a compiled graph; the binding's own never does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_contract_model import register
from statehal.ids import KernelIds
from statehal.spec import ConvRecurrent
from statehal.testing import Target


def compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(run, backend="aot_eager", fullgraph=True)
    return made


def test_the_bare_operator_drops_an_update_that_nobody_reads(operators: Callable[..., None]) -> None:
    """The hazard itself, of the schema that today's engines call: without it the next test would prove nothing."""
    operators("current")

    def step(state: Tensor, x: Tensor, weight: Tensor, loc: Tensor, index: Tensor) -> Tensor:
        torch.ops.npu.causal_conv1d(
            x=x, weight=weight, conv_states=state, query_start_loc=loc, cache_indices=index, run_mode=1
        )
        return x + 1

    given = torch.ones(1, 16), torch.ones(4, 16)
    x, weight = (one.to(torch.bfloat16) for one in given)
    loc, index = torch.tensor([0, 1]), torch.tensor([0])
    state = torch.zeros(1, 3, 16, dtype=torch.bfloat16)
    step(state, x, weight, loc, index)
    assert state[0, 2].eq(1).all()
    state.zero_()
    compiled(step)(state, x, weight, loc, index)
    assert state.eq(0).all(), "the undeclared mutation survived: this test has lost its point"
    assert "(a!)" not in register.CURRENT


@pytest.mark.parametrize("kind", ["current", "newer", "older", "custom"])
def test_a_compile_safe_binding_keeps_it(operators: Callable[..., None], kind: str) -> None:
    """Outputs of the steps are unused."""
    operators(kind)
    target = Target("ascend_npu")
    spec = ConvRecurrent("gdn", (0, 1), channels=16, width=4, dtype="bfloat16", verify_tokens=3)
    images = []
    for safe in (False, True):
        hal = target.binding(compile_safe=safe)
        pool = hal.allocate(hal.plan([spec], tokens=16, requests=4))
        conv = hal.conv(pool["gdn"])
        generator = torch.Generator().manual_seed(1)
        for layer in (0, 1):
            conv.prepare(layer, torch.randn(16, 4, generator=generator).to(torch.bfloat16), activation="silu")
        x = torch.randn(9, 16, generator=generator).to(torch.bfloat16)
        slots = pool["gdn"].kernel_ids(pool.alloc(3).page_ids())

        def steps(conv: Any, x: Tensor, slots: KernelIds, loc: Tensor, ones: Tensor, accepted: Tensor) -> Tensor:
            for layer in (0, 1):
                conv.prefill(layer, x, loc, slots)
            conv.commit(slots, ones)
            for layer in (0, 1):
                conv.verify(layer, x, slots)
            conv.commit(slots, accepted)
            for layer in (0, 1):
                conv.decode(layer, x[:3], slots)
            conv.commit(slots, ones)
            return x + 1

        run = compiled(steps) if safe else steps
        run(conv, x, slots, torch.tensor([0, 2, 5, 9]), torch.ones(3, dtype=torch.int64), torch.tensor([1, 3, 2]))
        images.append(bytes(pool.buffer.numpy().tobytes()))
    assert any(images[0])
    assert images[0] == images[1]
