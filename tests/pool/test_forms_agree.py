"""Checking, where a sub-pool's ids are several tensors: all of them name the same tokens."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pool.build import binding
from statehal import Attention, plan
from statehal.errors import WrongIdSpace
from statehal.layout import page_major
from statehal.pool import StatePool, SubPool

# rows of k and of v have different sizes, so each has ids of its own
SPECS = (
    Attention("two", (0,), kv_heads=1, head_dim=4, v_head_dim=8, dtype="float32"),
    Attention("uneven", (0, 1), kv_heads=1, head_dim=6, v_head_dim=4, dtype="float32"),
)


def rows(spec: Attention, page_size: int) -> object:
    return page_major(spec, page_size, forms=("row",))


def sub_pool(spec: Attention, layout: Callable[..., object] | None, check: bool = True) -> SubPool:
    more = {} if layout is None else {"layouts": layout}
    divided = plan([spec], tokens=64, page_size=4, waste_limit=0.9, **more)  # type: ignore[arg-type]
    return StatePool(divided, "cpu", binding().memory, check=check)[spec.name]


@pytest.fixture(params=[(SPECS[0], rows), (SPECS[1], None)], ids=["two", "uneven"])
def sub(request: pytest.FixtureRequest) -> SubPool:
    made = sub_pool(*request.param)
    assert len(set(made.multipliers("tokens"))) >= 2
    return made


def change(tensor: Tensor, index: int, value: Tensor | int) -> Tensor:
    copy = tensor.clone()
    copy[index] = value
    return copy


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("unit", ["tokens", "pages"])
@pytest.mark.parametrize("form", [0, -1])
def test_forms_that_name_different_tokens_are_refused(sub: SubPool, unit: str, form: int, dtype: torch.dtype) -> None:
    pages = sub.alloc(12)
    virtual = pages.token_ids() if unit == "tokens" else pages.page_ids()
    good = [tensor.to(dtype) for tensor in sub.kernel_ids(virtual).tensors]
    space = sub.space("kernel", unit)
    space.assume(*good)
    ids = good[form]
    wrong = {
        "another page, both live": change(ids, 0, ids[-1]),
        "one is negative": change(ids, 0, -1),
        "one is the sink": change(ids, 0, 0),
        "all of another page": ids.roll(4),
    }
    if unit == "tokens":
        wrong["another token of the page"] = change(ids, 0, ids[1])
    for case, tensor in wrong.items():
        mixed = list(good)
        mixed[form] = tensor
        first = tuple(int(one[0]) for one in mixed)
        text = f"ids [{first}"
        with pytest.raises(WrongIdSpace, match=f"^{re.escape(text)}") as caught:
            space.assume(*mixed)
        assert f"were declared {space} but the forms name different {unit}" in str(caught.value), case


def test_the_error_has_the_first_such_ids_and_says_what_to_do(sub: SubPool) -> None:
    good = sub.kernel_ids(sub.alloc(40).token_ids()).tensors
    mixed = [good[0], *(tensor.roll(1) for tensor in good[1:])]
    space = sub.space("kernel")
    pairs = list(zip(*(tensor.tolist() for tensor in mixed), strict=True))[:8]
    text = (
        f"ids {pairs} were declared {space} but the forms name different tokens, so a token's fields would be parts of "
        f"several (fix: pass the tensors of one kernel_ids() call, cut alike)"
    )
    with pytest.raises(WrongIdSpace, match=f"^{re.escape(text)}$"):
        space.assume(*mixed)


def test_padding_of_any_kind_agrees_with_padding(sub: SubPool) -> None:
    kernel = sub.kernel_ids(sub.alloc(8).token_ids())
    for one, two in pairwise((-1, 0, 3, -7)):
        tensors = [change(kernel.tensors[0], 2, one), *(change(tensor, 2, two) for tensor in kernel.tensors[1:])]
        assert sub.space("kernel").assume(*tensors).tensors == tuple(tensors)


def test_ids_of_any_shape_are_compared(sub: SubPool) -> None:
    kernel = sub.kernel_ids(sub.alloc(8).token_ids()).reshape(2, 4)
    space = sub.space("kernel")
    space.assume(*kernel.tensors)
    space.assume(*kernel[:0].tensors)
    with pytest.raises(WrongIdSpace, match="name different tokens"):
        space.assume(kernel.tensors[0], *(tensor.flip(0) for tensor in kernel.tensors[1:]))


def test_ids_that_name_no_page_are_still_reported_as_such(sub: SubPool) -> None:
    """Of the tensor that holds them, whichever it is."""
    good = sub.kernel_ids(sub.alloc(4).token_ids()).tensors
    free = int(good[-1][0]) + 2 * sub.multipliers("tokens")[-1]
    with pytest.raises(WrongIdSpace, match=rf"^ids \[{free}\] were declared .* but name no page in use there"):
        sub.space("kernel").assume(*good[:-1], change(good[-1], 0, free))


def test_ids_between_the_tokens_of_two_pages_name_no_page(sub: SubPool) -> None:
    good = sub.kernel_ids(sub.alloc(4).token_ids()).tensors
    form = next(i for i, step in enumerate(sub.multipliers("tokens")) if step > sub.page_size)
    between = int(good[form][0]) + sub.page_size
    tensors = [change(tensor, 0, between) if i == form else tensor for i, tensor in enumerate(good)]
    with pytest.raises(WrongIdSpace, match=rf"^ids \[{between}\] were declared .* but name no page in use there"):
        sub.space("kernel").assume(*tensors)


def test_without_checking_nothing_is_compared() -> None:
    sub = sub_pool(SPECS[1], None, check=False)
    one, two = sub.kernel_ids(sub.alloc(8).token_ids()).tensors
    assert sub.space("kernel").assume(one, two.flip(0)).tensors[0] is one
