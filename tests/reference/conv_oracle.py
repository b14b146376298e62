"""Causal convolution by definition in float64, exact rounding, and the meaning of slots: plain loops over lists."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import statehal
from reference.kv_oracle import raw
from statehal.hookspecs import CausalConv1d
from statehal.ids import KernelIds
from statehal.layout import AddressForm, ConvStateLayout, PoolLayout, conv_window, page_major
from statehal.pool import StatePool, SubPool
from statehal.spec import Spec
from statehal.testing.oracles.conv import Places

Rows = list[list[float]]


def convolve(history: Rows, x: Rows, weight: Rows, bias: list[float] | None, silu: bool) -> Rows:
    """``y[t][c] = act(bias[c] + sum over i of weight[c][i] * row[t - (W-1) + i][c])``, unrounded float64."""
    rows = history + x
    result = []
    for t in range(len(x)):
        out = []
        for c, taps in enumerate(weight):
            total = math.fsum(tap * rows[t + i][c] for i, tap in enumerate(taps))
            total += bias[c] if bias is not None else 0.0
            out.append(total / (1 + math.exp(-total)) if silu else total)
        result.append(out)
    return result


DIGITS = {torch.float32: (24, -125), torch.float16: (11, -13), torch.bfloat16: (8, -125)}
"""Binary digits of a significand, and the smallest exponent (as of ``frexp``) of a normal number."""


def rounded(rows: Rows, dtype: torch.dtype) -> Rows:
    """Each number rounded once, to the nearest, ties to even; nothing here overflows."""
    digits, smallest = DIGITS[dtype]

    def one(value: float) -> float:
        exponent = max(math.frexp(value)[1], smallest) - digits
        return math.ldexp(round(math.ldexp(value, -exponent)), exponent)

    return [[one(value) for value in row] for row in rows]


@dataclass
class Model:
    """What every slot holds, for one layer: the last ``width - 1`` inputs, and what a commit will make of them."""

    width: int
    channels: int
    weight: Rows = field(default_factory=list)
    bias: list[float] | None = None
    silu: bool = False
    live: dict[int, Rows] = field(default_factory=dict)
    next: dict[int, Rows] = field(default_factory=dict)

    def history(self, slot: int) -> Rows:
        """Live rows, oldest first; zero for a slot that was never used, or for padding."""
        return self.live.get(slot, [[0.0] * self.channels] * (self.width - 1))

    def step(self, slot: int, x: Rows, source: int | None) -> Rows:
        """Take tokens into a slot after the state of ``source`` (``None``: after nothing); padding gives zeros."""
        if slot <= 0:
            return [[0.0] * self.channels for _ in x]
        history = [[0.0] * self.channels] * (self.width - 1) if source is None else self.history(source)
        self.next[slot] = (history + x)[len(x) :]
        return convolve(history, x, self.weight, self.bias, self.silu)

    def commit(self, slots: list[int]) -> None:
        """End the step."""
        self.live |= {slot: self.next[slot] for slot in slots if slot > 0}

    def keep(self, slot: int, x: Rows) -> None:
        """Take tokens into a slot and end the step; padding keeps nothing."""
        if slot > 0:
            self.live[slot] = (self.history(slot) + x)[len(x) :]


EVERY_WINDOW = {
    "ring": ConvStateLayout(),
    "offset": ConvStateLayout(protocol="offset"),
    "rollback": ConvStateLayout(protocol="rollback"),
    "ring channels first, block form": ConvStateLayout("channels_first", forms=("block",)),
    "offset padded, row form": ConvStateLayout(channel_multiple=4, protocol="offset", forms=("row",)),
    "rollback channels first, padded": ConvStateLayout("channels_first", 8, "rollback"),
}


def layouts(conv: ConvStateLayout) -> Any:
    """Layouts for a plan, with that window for slots."""

    def layout(spec: Spec, page_size: int) -> PoolLayout:
        return conv_window(spec, conv) if spec.kind == "slots" else page_major(spec, page_size)

    return layout


@dataclass
class Rig:
    """A pool with a conv sub-pool of six slots."""

    pool: StatePool
    sub: SubPool
    conv: CausalConv1d
    slots: KernelIds
    index: torch.dtype = torch.int64

    def pick(self, *slots: int) -> KernelIds:
        """Kernel ids by the number of an allocated slot, from 1; 0 and negative numbers are padding."""
        numbers = torch.tensor(slots, dtype=torch.int64)
        tensors = [tensor[(numbers - 1).clamp(min=0)].where(numbers > 0, numbers) for tensor in self.slots.tensors]
        ids: KernelIds = self.sub.space("kernel", "pages").assume(*(tensor.to(self.index) for tensor in tensors))
        return ids

    def physical(self, slot: int) -> int:
        """The page of an allocated slot."""
        return int(self.pick(slot).of(AddressForm("page", 1))[0])

    def commit(self, *slots: int, accepted: list[int] | None = None) -> None:
        """End a step of these slots with a count of 1 each, unless told otherwise."""
        self.conv.commit(self.pick(*slots), torch.tensor(accepted or [1] * len(slots), dtype=torch.int64))


def rig(
    width: int = 4,
    channels: int = 3,
    dtype: str = "float32",
    layers: tuple[int, ...] = (0,),
    window: ConvStateLayout | None = None,
    *,
    shared: bool = False,
    weights: bool = True,
    slots: int = 6,
    check: bool = False,
    **spec: Any,
) -> Rig:
    """A conv sub-pool, alone or (``shared``) in slabs that an attention sub-pool shares."""
    window = window or ConvStateLayout()
    specs: list[Spec] = [statehal.ConvRecurrent("conv", layers, channels, width, dtype, **spec)]
    if shared:
        specs.append(statehal.Attention("kv", (90, 91), 1, 5, "float32"))
    plan = statehal.plan(specs, tokens=16, requests=slots, page_size=4, layouts=layouts(window), waste_limit=0.9)
    hal = statehal.bind("cpu", "reference", check=check)
    pool = StatePool(plan, "cpu", hal.memory, check=check)
    sub = pool["conv"]
    if shared:
        pool.alloc(4, "kv")
    ids = sub.kernel_ids(pool.alloc(slots, "conv").page_ids())
    made = Rig(pool, sub, hal.conv(sub), ids)
    if weights:
        for layer in layers:
            made.conv.prepare(layer, whole(layer + 40, channels, width, dtype=made.sub.view("conv", layers[0]).dtype))
    return made


def with_model(made: Rig, seed: int) -> Model:
    """A model of the first layer, of which both get new weights."""
    spec = made.sub.spec
    assert isinstance(spec, statehal.ConvRecurrent)
    dtype = getattr(torch, spec.dtype)
    weight, bias = whole(seed, spec.channels, spec.width, dtype=dtype), whole(seed + 1, spec.channels, dtype=dtype)
    made.conv.prepare(spec.layers[0], weight, bias)
    return Model(spec.width, spec.channels, lists(weight), lists(bias))


def places(made: Rig) -> Places:
    """Where rows lie in its windows."""
    spec, conv = made.sub.spec, made.sub.layout.conv
    assert isinstance(spec, statehal.ConvRecurrent)
    assert conv is not None
    return Places(conv.protocol, spec.width, spec.width - 1 + spec.verify_tokens - 1)


def whole(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers: their sums of products are exact in any order, so results can be compared bit for bit."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def noise(seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers, rounded to the dtype."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def lists(tensor: Tensor) -> Any:
    """Its values as lists of Python floats."""
    return tensor.double().tolist()


def line(parents: list[int], row: int) -> list[int]:
    """The rows of a draft tree from its root to this one."""
    return [*(line(parents, parents[row]) if parents[row] >= 0 else []), row]


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape and dtype have the same bits: zeros of two signs do not."""
    as_bytes = [tensor.contiguous().view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and torch.equal(*as_bytes)


def refused(made: Rig, error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    """The call raises that error with that text, and leaves every byte of the pool as it was."""
    before = raw(made.pool.buffer)
    with pytest.raises(error, match=text):
        call()
    assert raw(made.pool.buffer) == before
