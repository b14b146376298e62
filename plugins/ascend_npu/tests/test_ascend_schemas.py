"""Operators are known by their schemas: each that is known is called, and any other is refused when a host binds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import statehal
from npu_contract_model import register
from statehal.errors import Unsupported
from statehal.spec import Attention, ConvRecurrent
from statehal.testing import Target
from statehal_ascend_npu.operators import conv1d, kv

GDN = ConvRecurrent("gdn", (0,), channels=16, width=4, dtype="bfloat16", verify_tokens=2)
ROWS = Attention("rows", (0,), 2, 16, "bfloat16")


@contextmanager
def registered(name: str, schema: str) -> Iterator[None]:
    """An operator that nobody should call."""

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{name} was called")

    register.add(name.split("::")[0], schema, never)
    try:
        yield
    finally:
        register.clear()


def bound(spec: statehal.ConvRecurrent | statehal.Attention) -> Any:
    target = Target("ascend_npu")
    pool = target.pool([spec], tokens=16, requests=2, page_size=16)
    return target.binding().conv(pool[spec.name]) if spec is GDN else target.binding().kv(pool[spec.name])


@pytest.mark.parametrize(
    ("kind", "updates", "index"),
    [
        ("current", True, torch.int64),
        ("newer", True, torch.int64),
        ("older", False, torch.int64),
        ("custom", True, torch.int32),
    ],
)
def test_every_known_schema_is_taken(
    operators: Callable[..., None], kind: str, updates: bool, index: torch.dtype
) -> None:
    operators(kind)
    found = conv1d.choose()
    assert found is not None
    assert (found.updates, found.index) == (updates, index)


def test_a_declared_mutation_does_not_matter(operators: Callable[..., None]) -> None:
    operators("newer")
    assert "Tensor(a!) conv_states" in conv1d.described()
    assert conv1d.choose() is not None


def test_without_an_operator_torch_does_it(operators: Callable[..., None]) -> None:
    operators(None, "nd")
    assert conv1d.choose() is None
    assert conv1d.described() == "torch operations: no operator is registered"
    assert bound(GDN) is not None


@pytest.mark.parametrize(
    "change",
    [
        ("Tensor? bias=None, ", ""),  # an argument is gone
        ("int run_mode=0", "int run_mode=1"),  # a default means something else
        ("Tensor conv_states", "Tensor conv_state"),  # another name
        ("int activation_mode=0", 'str activation_mode="silu"'),  # another type
        ("weight, Tensor conv_states", "conv_states, Tensor weight"),  # another order
        (") -> Tensor", ", int more=0) -> Tensor"),  # one more
        ("-> Tensor", "-> (Tensor, Tensor)"),
    ],
    ids=["fewer", "default", "name", "type", "order", "more", "results"],
)
def test_a_schema_that_has_drifted_is_refused_at_bind(operators: Callable[..., None], change: tuple[str, str]) -> None:
    drifted = register.CURRENT.replace(*change)
    assert drifted != register.CURRENT
    with registered("npu::causal_conv1d", drifted), pytest.raises(Unsupported) as refused:
        bound(GDN)
    text = str(refused.value)
    assert text.startswith("the operator is registered as npu::causal_conv1d(")
    assert "which is none of the schemas that this backend calls" in text
    assert "(fix: install the operators that statehal-ascend-npu was written for" in text


def test_a_known_operator_beside_a_drifted_one_is_taken(operators: Callable[..., None]) -> None:
    operators("custom")
    register.add("npu", register.CURRENT.replace("run_mode=0", "run_mode=1"), lambda *args: None)
    found = conv1d.choose()
    assert found is not None
    assert found.index == torch.int32


def test_doctor_says_what_was_refused(operators: Callable[..., None]) -> None:
    with registered("npu::causal_conv1d", register.CURRENT.replace("run_mode=0", "run_mode=1")):
        assert conv1d.described().startswith("refused: the operator is registered as npu::causal_conv1d(")


@pytest.mark.parametrize(
    ("kind", "name", "schema"),
    [
        ("pa", "npu::npu_scatter_pa_kv_cache", register.SCATTER_PA.replace('"PA_NZ"', '"Norm"')),
        ("reshape", "atb::_npu_reshape_and_cache", register.RESHAPE.replace("slot_indices", "slots")),
        ("nd", "npu::npu_scatter_nd_update_", register.SCATTER_ND.replace("updates", "update")),
    ],
)
def test_a_kv_operator_that_has_drifted_is_refused_at_bind(
    operators: Callable[..., None], kind: str, name: str, schema: str
) -> None:
    with registered(name, schema), pytest.raises(Unsupported, match=f"the operator is registered as {name}"):
        bound(ROWS)


@pytest.mark.parametrize(
    ("there", "dtype", "used"),
    [
        (("pa", "reshape", "nd"), "bfloat16", "scatter"),
        (("reshape", "nd"), "float16", "reshape"),
        (("nd",), "bfloat16", None),
        (("pa", "reshape", "nd"), "float32", None),
    ],
)
def test_kv_operators_are_taken_in_order_by_presence_and_dtype(
    operators: Callable[..., None], there: tuple[str, ...], dtype: str, used: str | None
) -> None:
    operators(None, *there)
    found = kv.pair(getattr(torch, dtype), fractal=False)
    assert (found.__name__ if found else None) == used
    assert kv.single(getattr(torch, dtype)) is not None


def test_arguments_are_given_by_keyword_alone(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name once had another order: a call by position would read has_initial_state as bias."""
    operators("current")
    found = conv1d.choose()
    assert found is not None
    seen: list[tuple[int, set[str]]] = []
    call = found._call

    def spy(*args: Any, **kwargs: Any) -> Any:
        seen.append((len(args), set(kwargs)))
        return call(*args, **kwargs)

    monkeypatch.setattr(found, "_call", spy)
    x = torch.ones(1, 16, dtype=torch.bfloat16)
    step = conv1d.Sequences(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([False]))
    found(x, x.expand(4, 16).contiguous(), torch.zeros(1, 3, 16, dtype=torch.bfloat16), None, step, silu=False)
    names = {one.name for one in call._schema.arguments}
    assert seen == [(0, names)]
