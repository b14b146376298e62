"""Strategies that several topics draw from: layers, page sizes, neighbours in the pool."""

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from statehal.ids import KernelIds
from statehal.pool import SubPool
from statehal.pool.pages import Pages
from statehal.spec import Attention, ConvRecurrent, Spec
from statehal.testing.target import Target

PAGE_SIZES = (1, 3, 5, 16)
"""Of which 3 and 5 are no powers of two."""


def page_sizes() -> SearchStrategy[int]:
    """Tokens a page."""
    return st.sampled_from(PAGE_SIZES)


@st.composite
def layer_ids(draw: DrawFn, most: int = 4) -> tuple[int, ...]:
    """Model layer ids, neither sorted nor dense; now and then 61 of them."""
    if draw(st.integers(0, 19)) == 0:
        return tuple(range(61))
    return tuple(draw(st.lists(st.integers(0, 40), min_size=1, max_size=most, unique=True)))


def storage(tags: Sequence[str], prefix: str) -> SearchStrategy[str]:
    """One of the dtypes that a backend claims: of ``"store:bfloat16"`` the part after the colon."""
    return st.sampled_from(sorted(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)))


@st.composite
def neighbours(draw: DrawFn) -> tuple[Spec, ...]:
    """Other sub-pools of the same pool, with which slabs are shared; often none."""
    few: list[Spec] = []
    if draw(st.booleans()):
        few.append(Attention("other", (50, 51), draw(st.integers(1, 2)), 8, "float32"))
    if draw(st.integers(0, 3)) == 0:
        few.append(ConvRecurrent("slots", (60,), 8, 3, "float32", state=(2, 4)))
    return tuple(few)


def layer_features(layers: tuple[int, ...], page_size: int, others: Sequence[Spec]) -> set[str]:
    """What these exercise, in words."""
    found = {f"page size {page_size}"}
    found.add("one layer" if len(layers) == 1 else "61 layers" if len(layers) == 61 else "several layers")
    if others:
        found.add("a view of a bigger pool")
    return found


def pick(
    target: Target, sub: SubPool, pages: Pages, tokens: Sequence[int], dtype: torch.dtype, *, negative: bool
) -> KernelIds:
    """Kernel ids of some tokens of a handle; -1 is padding, as a negative kernel id or as one of the sink."""
    held = pages.token_ids().tensors[0].cpu()
    wanted = torch.tensor(tokens, dtype=torch.int64)
    virtual = held[wanted.clamp(min=0)].where(wanted >= 0, -1).to(dtype) if len(tokens) else held[:0].to(dtype)
    ids: Any = sub.kernel_ids(sub.space("virtual").assume(target.on_device(virtual)))
    if not negative:
        return ids  # type: ignore[no-any-return]
    absent = target.on_device(wanted < 0)
    tensors = [tensor.masked_fill(absent, -1) for tensor in ids.tensors]
    return sub.space("kernel").assume(*tensors)  # type: ignore[no-any-return]
