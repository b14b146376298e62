"""Bits of outputs: the same whatever the method, the chunk and the division of the work; and what shares memory."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import statehal
from statehal.hookspecs import CausalConv1dRequest
from statehal.ids import KernelIds
from statehal.layout import ConvStateLayout, conv_window
from statehal.pool import StatePool
from statehal.spec import ConvRecurrent
from statehal_triton_ops.causal_conv1d import TritonCausalConv1d
from statehal_triton_ops.conv import ConvTuning
from statehal_triton_ops.launch import recorded

pytestmark = pytest.mark.interpreted

FINE = ConvTuning(lanes=1, warps=1, tokens=3, rows=2, words=16, tiles=1)


class Rig:
    """A pool of three slots, and the operations over it."""

    def __init__(self, width: int, protocol: Any, tuning: ConvTuning, dtype: str = "float32", **spec: Any) -> None:
        self.channels, self.drafts = spec.pop("channels", 5), spec.get("verify_tokens", 1)
        made = ConvRecurrent("conv", (3,), self.channels, width, dtype, **spec)
        window = ConvStateLayout(protocol=protocol)
        plan = statehal.plan(
            [made], tokens=16, requests=3, page_size=1, layouts=lambda spec, _: conv_window(spec, window),
            waste_limit=0.9,
        )  # fmt: skip
        self.pool = StatePool(plan, "cpu", statehal.bind("cpu", "reference").memory)
        self.sub = self.pool["conv"]
        self.slots = self.sub.kernel_ids(self.pool.alloc(3, "conv").page_ids())
        self.conv = TritonCausalConv1d(CausalConv1dRequest(self.sub, "cpu"), tuning)
        self.weight, self.bias = noise(1, self.channels, width), noise(2, self.channels)
        self.conv.prepare(3, self.weight, self.bias, activation="silu")

    def pick(self, *numbers: int) -> KernelIds:
        return self.slots[torch.tensor(numbers)]

    def commit(self, count: int = 1, path: Tensor | None = None) -> None:
        self.conv.commit(self.pick(0), torch.tensor([count]), path=path)

    def prefill(self, x: Tensor, *, more: bool = False) -> Tensor:
        result = self.conv.prefill(3, x, torch.tensor([0, len(x)]), self.pick(0), torch.tensor([more]))
        self.commit()
        return result


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("protocol", ["ring", "offset"])
@pytest.mark.parametrize("width", range(2, 9))
def test_a_token_has_the_same_bits_however_it_comes(width: int, protocol: str) -> None:
    """A prompt as a whole, then in a chunk, decodes, a chain and a tree of one branch, with the work cut finely."""
    x = noise(3, 19, 5)
    coarse, fine = (Rig(width, protocol, tuning, verify_tokens=4) for tuning in (ConvTuning(), FINE))
    whole = coarse.prefill(x)
    assert torch.equal(fine.prefill(x), whole)
    cut = random.Random(width).randrange(1, 9)
    parts = [fine.prefill(x[:cut]), fine.prefill(x[cut:9], more=True)]
    for token in x[9:11]:
        parts.append(fine.conv.decode(3, token[None], fine.pick(0)))
        fine.commit()
    for path, parents in ((None, None), (torch.arange(4)[None], torch.arange(-1, 3))):
        start = sum(len(part) for part in parts)
        parts.append(fine.conv.verify(3, x[start : start + 4], fine.pick(0), parents=parents))
        fine.commit(4, path)
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(fine.conv.read_state(fine.pick(0))[0, 0], x[-(width - 1) :])


def test_sums_are_those_of_the_definition() -> None:
    """Within what float32 sums lose; ``silu`` of numbers whose exponential overflows included."""
    rig = Rig(4, "ring", ConvTuning())
    x = noise(4, 12, 5) * 40
    rows = torch.cat([torch.zeros(3, 5), x]).double()
    total = sum(rows[i : i + 12] * rig.weight[:, i].double() for i in range(4)) + rig.bias.double()
    wanted = total / (1 + torch.exp(-total))
    assert torch.allclose(rig.prefill(x).double(), wanted, rtol=2e-6, atol=2e-5)


def test_a_fork_is_made_while_its_source_goes_on() -> None:
    """The slot that a sequence goes on from may be another sequence's own, even where that takes all its rows."""
    rig = Rig(6, "ring", FINE)
    x = noise(5, 9, 5)
    rig.prefill(x[:4])
    loc, both = torch.tensor([0, 1, 5]), torch.tensor([True, True])
    rig.conv.prefill(3, x[4:9], loc, rig.pick(1, 0), both, initial_slots=rig.pick(0, 0))
    rig.conv.commit(rig.pick(1, 0), torch.tensor([1, 1]))
    state = rig.conv.read_state(rig.pick(1, 0))[0]
    assert torch.equal(state[0], torch.cat([x[:4], x[4:5]]))
    assert torch.equal(state[1], torch.cat([x[3:4], x[5:9]]))


@pytest.mark.parametrize("shift", [0, 1])
def test_outputs_may_lie_over_inputs(shift: int) -> None:
    """``out`` is ``x``, or begins a row later in the same memory."""
    for method in ("prefill", "decode", "verify", "verify a tree"):
        outputs = []
        for overlapping in (False, True):
            rig = Rig(4, "ring", FINE, verify_tokens=3, channels=3)
            memory = noise(6, 4, 3)
            x = memory[:3]
            more: dict[str, Any] = {"out": memory[shift : shift + 3] if overlapping else None}
            if method == "prefill":
                got = rig.conv.prefill(3, x, torch.tensor([0, 1, 3]), rig.pick(0, 1), **more)
            elif method == "decode":
                got = rig.conv.decode(3, x, rig.pick(0, 1, 2), **more)
            else:
                parents = torch.tensor([-1, 0, 0]) if "tree" in method else None
                got = rig.conv.verify(3, x, rig.pick(0), parents=parents, **more)
            outputs.append((got.clone(), rig.pool.buffer.clone()))
        for one, other in zip(*outputs, strict=True):
            assert torch.equal(one, other), method


def test_rows_out_of_range_stay_inside() -> None:
    """Nonsense in index tensors reaches no memory but the slots' own and the outputs."""
    rig = Rig(4, "offset", FINE, verify_tokens=3)
    x = noise(7, 8, 5)
    for loc in ([-5, 3, 99], [7, 2, 4], [99, -99, 99]):
        ends = torch.tensor(loc)
        rig.conv.prefill(3, x, ends, rig.pick(0, 1), torch.tensor([True, True]))
        rig.conv.verify(3, x, rig.pick(0, 1), query_start_loc=ends, parents=torch.tensor([9, -9] * 4))
        points = torch.tensor([-1, 7]), torch.tensor([99, -99]), rig.pick(2, 1)
        rig.conv.prefill(3, x, ends, rig.pick(0, 1), snapshots=points)
        rig.conv.commit(rig.pick(0, 1), torch.tensor([99, -99]), path=torch.full((2, 3), 99))
    assert not rig.pool.buffer[: rig.sub.layout.page_bytes].any(), "the sink was written"
    assert not rig.conv.read_state(rig.pick(2)).any()


def test_launches_are_as_few_as_the_docstring_says() -> None:
    """Of every method, whatever the number of layers and fields."""
    rig = Rig(3, "ring", ConvTuning(), verify_tokens=2, state=(2, 2))
    x, ends, ones, yes = (
        noise(8, 2, 5),
        torch.tensor([0, 1, 2]),
        torch.ones(2, dtype=torch.int64),
        torch.tensor([True, True]),
    )
    ids, wide = rig.pick(0, 1), rig.slots[torch.tensor([0, 0, 1, 1])].reshape(2, 2)
    path = torch.zeros(2, 2, dtype=torch.int64)
    track = {"track_slots": ids, "track_accepted": ones, "state_slots": wide}
    calls: list[tuple[int, str, tuple[Any, ...], dict[str, Any]]] = [
        (3, "prefill", (3, x, ends, ids), {}),
        (5, "prefill", (3, x, ends, ids, yes), {"initial_slots": ids}),
        (4, "prefill", (3, x, ends, ids), {"snapshots": (ones, ones, ids)}),
        (1, "decode", (3, x, ids), {}),
        (1, "verify", (3, x, rig.pick(0)), {}),
        (1, "commit", (ids, ones), {}),
        (1, "commit", (ids, ones), {"state_slots": wide}),
        (2, "commit", (ids, ones), {"path": path, "state_slots": wide}),
        (2, "commit", (ids, ones), track),
        (4, "commit", (ids, ones), {"path": path, **track}),
        (1, "copy_slots", (ids, ids), {}),
        (1, "zero_slots", (ids,), {}),
        (1, "read_state", (ids,), {}),
    ]
    for count, method, given, more in calls:
        with recorded() as launches:
            getattr(rig.conv, method)(*given, **more)
        assert len(launches) == count, f"{method} {sorted(more)}: {[one.kernel.fn.__name__ for one in launches]}"


def test_weights_keep_their_memory_and_follow_the_tensors() -> None:
    """A change in place and a second ``prepare`` are taken into the memory that a captured graph reads."""
    rig = Rig(2, "ring", ConvTuning())
    with recorded() as launches:
        rig.conv.decode(3, noise(9, 1, 5), rig.pick(0))
        rig.weight.mul_(2)
        rig.conv.decode(3, noise(9, 1, 5), rig.pick(0))
        rig.conv.prepare(3, rig.weight.double() + 1)
        rig.conv.decode(3, noise(9, 1, 5), rig.pick(0))
    taps = [one.arguments[2] for one in launches]
    assert len({one.data_ptr() for one in taps}) == 1
    assert torch.equal(taps[0], torch.cat([rig.weight.t() + 1, torch.zeros(1, 5)]))
