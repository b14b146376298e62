"""The extension sees the same changes of tensors as ``statehal.hookspecs.prepared.watch``."""

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from statehal.hookspecs import prepared
from statehal_cpu.probe import load

Watch = Callable[..., Callable[[], bool]]
WATCHES: dict[str, Watch] = {"core": prepared.watch, "extension": load().watch}


def assign(tensor: Tensor, value: Tensor) -> None:
    tensor.data = value


CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "copy_": lambda w: w.copy_(torch.zeros(2, 2)),
    "an element": lambda w: w[0, 0].fill_(3),
    "a view": lambda w: w.view(-1)[:1].sub_(5),
    "a detached tensor": lambda w: w.detach().neg_(),
    "other memory": lambda w: assign(w, w.data.clone()),
    "another dtype in the same memory": lambda w: assign(w, w.data.view(torch.float16)),
    "another dtype in other memory": lambda w: assign(w, w.data.float()),
    "other strides": lambda w: assign(w, w.data.t()),
    "another size": lambda w: assign(w, w.data[:1]),
    "another axis": lambda w: assign(w, w.data[None]),
    "resize_": lambda w: w.requires_grad_(False).resize_(1, 2),
    "inference_mode": lambda w: assign(w, inference(w)),
}
NONE: dict[str, Callable[[Tensor], Any]] = {
    "nothing": lambda w: None,
    "a result": lambda w: w + 1,
    "a write to a clone": lambda w: w.clone().zero_(),
    "itself": lambda w: assign(w, w.data),
    "requires_grad_": lambda w: w.requires_grad_(not w.requires_grad),
}


def inference(tensor: Tensor) -> Tensor:
    """Of the same memory, but no write to it is counted."""
    with torch.inference_mode():
        return from_dlpack(tensor.detach())


@pytest.mark.parametrize("kind", ["tensor", "parameter"])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("way", [*CHANGES, *NONE])
@pytest.mark.parametrize("name", WATCHES)
@torch.no_grad()
def test_changes_are_seen(name: str, way: str, which: int, kind: str) -> None:
    made = [torch.ones(2, 2, dtype=torch.bfloat16) for _ in range(2)]
    tensors = [torch.nn.Parameter(one) for one in made] if kind == "parameter" else made
    same = WATCHES[name](tensors[0], None, tensors[1])
    assert same()
    (CHANGES | NONE)[way](tensors[which])
    assert same() == (way in NONE)
    assert WATCHES[name](*tensors)() == (way != "inference_mode")


@pytest.mark.parametrize("name", WATCHES)
def test_of_tensors_that_count_no_writes_all_may_have_changed(name: str) -> None:
    tensor = inference(torch.ones(1))
    assert not WATCHES[name](tensor)()
    assert not WATCHES[name](torch.ones(1), tensor)()
    assert WATCHES[name]()()
    assert WATCHES[name](None)()


@pytest.mark.parametrize("name", WATCHES)
def test_a_watch_keeps_its_tensors(name: str) -> None:
    """Or memory that another tensor takes over would pass for theirs."""
    same = WATCHES[name](torch.ones(5))
    others = [torch.ones(5) for _ in range(50)]
    assert same()
    del others


@pytest.mark.parametrize("name", WATCHES)
def test_a_weight_that_knows_its_owner_goes_with_it(name: str) -> None:
    """Engines leave loaders on parameters, methods of the module that holds the weights and what was made of them."""

    class Owner:
        pass

    owner, weight = Owner(), torch.nn.Parameter(torch.ones(1))
    owner.same = WATCHES[name](weight)  # type: ignore[attr-defined]
    weight.loader = owner  # type: ignore[attr-defined]
    gone = ref(owner)
    del owner, weight
    gc.collect()
    assert gone() is None
