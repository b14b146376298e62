"""A conv sub-pool to be judged: drawn sizes, dtypes, weights and neighbours."""

import random
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs.capabilities import WINDOWS
from statehal.spec import ConvRecurrent, ExtraField, Spec
from statehal.testing.draws import layer_features, neighbours, page_sizes
from statehal.testing.target import Target

STATE = (2, 2)
"""Shape of the recurrent state of a layer."""

EXTRA = ExtraField("shift", (3,), "int32")
"""A further recurrent row."""


@dataclass(frozen=True)
class Setup:
    """A conv sub-pool, alone or beside others, and the weights of its layers.

    Attributes:
        x_dtype: of inputs and outputs; a float32 window holds bfloat16 and float16 inputs, too.
        weight_dtype: of weights and biases.
        whole: values are small whole numbers, whose sums of products are exact in any order.
        index: dtype of ids and of index tensors.
        seed: of every value.
        checking: with the binding's own checks on.
    """

    spec: ConvRecurrent
    others: tuple[Spec, ...]
    page_size: int
    x_dtype: str
    weight_dtype: str
    bias: bool
    silu: bool
    whole: bool
    index: torch.dtype
    seed: int
    checking: bool = False

    @property
    def features(self) -> frozenset[str]:
        spec = self.spec
        found = layer_features(spec.layers, self.page_size, self.others)
        found |= {f"width {spec.width}", f"window {spec.dtype}", str(self.index).removeprefix("torch.")}
        found |= {"bias" if self.bias else "no bias", "silu" if self.silu else "no activation"}
        found |= {"one token a step"} if spec.verify_tokens == 1 else {"drafts"}
        found |= {"recurrent state"} if spec.state else {"no recurrent state"}
        found |= {"x narrower than the window"} if self.x_dtype != spec.dtype else set()
        return frozenset(found)

    def one_token(self) -> "Setup":
        """The same layers and weights with windows for one token a step, alone and without recurrent rows."""
        return replace(self, spec=replace(self.spec, verify_tokens=1, state=None, extra=()), others=(), checking=False)


def windows(target: Target) -> tuple[str, ...]:
    """Tags of the window dtypes that a backend claims.

    Raises:
        AssertionError: it claims none, and provides conv operations all the same.
    """
    tags = tuple(tag for tag in WINDOWS if tag in target.offers)
    assert tags, f"{target.backend!r} provides conv operations and claims none of {', '.join(WINDOWS)}"
    return tags


@st.composite
def setups(
    draw: DrawFn,
    tags: tuple[str, ...],
    *,
    widths: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8),
    drafts: tuple[int, ...] = (1, 1, 2, 3, 4, 5, 8),
    state: bool | None = None,
    whole: bool | None = None,
    silu: bool | None = None,
) -> Setup:
    """A setup in one of the claimed dtypes; an argument that is given is not drawn, or drawn among these.

    Sizes come from one seed: drawn one by one, Hypothesis would repeat some and leave others out.
    """
    chance = random.Random(draw(st.integers(0, 2**32 - 1)))
    dtype = chance.choice(tags).removeprefix("window:")
    whole = chance.random() < 0.5 if whole is None else whole
    recurrent = chance.random() < 0.6 if state is None else state
    spec = ConvRecurrent(
        "conv", chance.choice([(0,), (3,), (5, 2), (0, 1), (9, 4, 7)]), chance.randint(1, 5), chance.choice(widths),
        dtype, verify_tokens=chance.choice(drafts), state=STATE if recurrent else None,
        state_dtype=chance.choice(["float32", dtype]), extra=(EXTRA,) if recurrent and chance.random() < 0.5 else (),
    )  # fmt: skip
    return Setup(
        spec,
        draw(neighbours()),
        draw(page_sizes()),
        chance.choice(["float32", "bfloat16", "float16"] if dtype == "float32" else [dtype]),
        chance.choice([dtype, "float32"]),
        chance.random() < 0.5,
        (not whole and chance.random() < 0.5) if silu is None else silu,
        whole,
        chance.choice([torch.int32, torch.int64]),
        chance.randrange(10_000),
        chance.random() < 0.25,
    )
