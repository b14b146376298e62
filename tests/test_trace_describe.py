"""No value of a tensor reaches a trace, wherever the tensor is held."""

import dataclasses
import enum
from collections import OrderedDict, namedtuple
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from statehal.trace import describe

SENTINEL = 7654321.0
DIGITS = "7654321"


def secret(*shape: int) -> torch.Tensor:
    return torch.full(shape or (2, 3), SENTINEL)


@dataclasses.dataclass(frozen=True)
class Held:
    layer: int
    rows: Any


class Slotted:
    __slots__ = ("rows",)

    def __init__(self, rows: Any) -> None:
        self.rows = rows


class Talkative:
    """Its own text shows values, as that of many containers of tensors does."""

    def __init__(self) -> None:
        self.rows = secret()

    def __repr__(self) -> str:
        return repr(self.rows)

    __str__ = __repr__

    @property
    def loud(self) -> Any:
        raise AssertionError("a property was run")


class Parameterised(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(secret())


class Kind(enum.Enum):
    TENSOR = secret()


Pair = namedtuple("Pair", ["a", "b"])
HOLDERS: dict[str, Any] = {
    "tensor": secret(),
    "scalar": secret().sum(),
    "parameter": torch.nn.Parameter(secret()),
    "sparse": secret().to_sparse(),
    "array": secret().numpy(),
    "array scalar": np.float32(SENTINEL),
    "list": [secret()],
    "deep": [[({"k": {"k": [secret()]}},)]],
    "dict": {"k": secret()},
    "key": {secret(): 1},
    "proxy": MappingProxyType({"k": secret()}),
    "ordered": OrderedDict(k=secret()),
    "set": {secret()},
    "namedtuple": Pair(secret(), 1),
    "dataclass": Held(3, secret()),
    "nested dataclass": Held(3, Held(4, [secret()])),
    "slots": Slotted(secret()),
    "object": Talkative(),
    "module": Parameterised(),
    "bound method": Talkative().__repr__,
    "error": ValueError("bad rows", secret()),
    "enum": Kind.TENSOR,
    "storage": secret().untyped_storage(),
    "bytes": secret().numpy().tobytes(),
    "generator": (row for row in secret()),
    "class": type("Local", (), {"rows": secret()}),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_no_value_appears(name: str) -> None:
    text = describe(HOLDERS[name])
    assert DIGITS not in text
    assert "tensor(" not in text
    assert "\n" not in text
    assert "not described" not in text


@pytest.mark.parametrize(
    "name", ["list", "deep", "dict", "proxy", "namedtuple", "dataclass", "nested dataclass", "slots", "object", "error"]
)
def test_a_held_tensor_is_shown_by_its_shape(name: str) -> None:
    assert "Tensor(float32, shape=(2, 3), strides=(3, 1), device=cpu)" in describe(HOLDERS[name])


def test_dtype_shape_strides_and_device() -> None:
    view = torch.zeros(4, 6, dtype=torch.bfloat16)[:, ::2].t()
    assert describe(view) == "Tensor(bfloat16, shape=(3, 4), strides=(2, 6), device=cpu)"
    assert describe(torch.empty(2, device="meta", dtype=torch.int32)) == (
        "Tensor(int32, shape=(2,), strides=(1,), device=meta)"
    )


def test_a_tensor_without_strides() -> None:
    class Ragged(torch.Tensor):
        def stride(self, *dims: Any) -> Any:
            raise RuntimeError("ragged tensors have no strides")

    ragged = torch.zeros(2, 2).as_subclass(Ragged)
    assert describe(ragged) == "Tensor(float32, shape=(2, 2), strides=none, device=cpu)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (1e-6, "1e-06"),
        ("gdn", "'gdn'"),
        (b"abc", "bytes(3 bytes)"),
        (torch.bfloat16, "torch.bfloat16"),
        (torch.device("cpu"), "cpu"),
        (Path("a/b"), "PosixPath('a/b')"),
        (Kind.TENSOR, "Kind.TENSOR"),
        ((1,), "(1,)"),
        ({"b": 1}, "{'b': 1}"),
        (Held(3, "x"), "Held(layer=3, rows='x')"),
        (Pair(1, 2), "Pair(a=1, b=2)"),
        (KeyError("k"), "KeyError('k')"),
        (len, "builtins.len"),
        (object(), "<builtins.object>"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        ("x" * 999, "'" + "x" * 200 + "...'"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_plain_values_are_shown(value: object, text: str) -> None:
    assert describe(value) == text


def test_an_object_is_shown_by_its_class_and_the_tensors_it_holds() -> None:
    text = describe(Talkative())
    assert text.startswith("<")
    assert text.endswith("Talkative rows=Tensor(float32, shape=(2, 3), strides=(3, 1), device=cpu)>")


def test_a_cycle_ends() -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert describe(cycle) == "[1, <builtins.list ...>]"


def test_a_value_that_resists_is_named_and_raises_nothing() -> None:
    class Resists(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("no")

    assert describe(Resists(a=1)).endswith("Resists: not described, RuntimeError>")
