"""Weights that change after ``prepare``: whatever way they are reloaded, the next call uses them as they are."""

from collections.abc import Callable
from threading import Event, Thread, current_thread
from typing import Any

import pytest
import torch

from reference.conv_oracle import Rig, Rows, lists, refused, rig, whole
from statehal.errors import ArgumentError
from statehal.hookspecs import Prepared

X = whole(1, 6, 2, dtype=torch.bfloat16)


def outputs(made: Rig) -> Rows:
    """Of each method, one after the other, for the same tokens after an empty slot."""
    conv, slot, result = made.conv, made.pick(1), []
    conv.zero_slots(slot)
    result += lists(conv.prefill(0, X[:2], torch.tensor([0, 2]), slot))
    made.commit(1)
    result += lists(conv.decode(0, X[2:3], slot))
    made.commit(1)
    return [*result, *lists(conv.verify(0, X[3:], slot))]


def wanted(weight: torch.Tensor, bias: torch.Tensor | None) -> Rows:
    made = rig(3, 2, "bfloat16", weights=False, verify_tokens=3)
    made.conv.prepare(0, weight.clone(), None if bias is None else bias.clone())
    return outputs(made)


def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
    tensor.data = value


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "copy_": lambda weight: weight.copy_(whole(9, *weight.shape)),
    "an element": lambda weight: weight[..., 0].fill_(3),
    "a view": lambda weight: weight.view(-1)[:1].sub_(5),
    "a detached tensor": lambda weight: weight.detach().neg_(),
    "data = other memory": lambda weight: assign(weight, whole(8, *weight.shape, dtype=weight.dtype)),
    "data = another dtype": lambda weight: assign(weight, (weight + 0.5).float()),
    "half()": lambda weight: assign(weight, (weight * 3).half()),
}
"""Ways of changing a tensor that torch counts, or that give it other memory or another dtype."""

UNCOUNTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "data.copy_": lambda weight: weight.data.copy_(whole(7, *weight.shape)),
    "numpy": lambda weight: weight.view(torch.int16).numpy().fill(0x4040),
}


@pytest.mark.parametrize("which", ["weight", "bias"])
@pytest.mark.parametrize("way", [*CHANGES, *UNCOUNTED])
@pytest.mark.parametrize("inference", [False, True])
def test_the_reference_uses_the_weights_as_they_are(way: str, which: str, inference: bool) -> None:
    with torch.inference_mode(inference):
        made = rig(3, 2, "bfloat16", weights=False, verify_tokens=3)
        tensors = {"weight": whole(2, 2, 3, dtype=torch.bfloat16), "bias": whole(3, 2, dtype=torch.bfloat16)}
        made.conv.prepare(0, tensors["weight"], tensors["bias"])
        before = outputs(made)
        assert before == wanted(**tensors)
        (CHANGES | UNCOUNTED)[way](tensors[which])
        after = outputs(made)
        assert after != before
        assert after == wanted(**tensors)


def test_prepare_again_replaces_weight_bias_and_activation() -> None:
    made = rig(3, 2, "bfloat16", weights=False, verify_tokens=3)
    made.conv.prepare(0, whole(2, 2, 3), whole(3, 2), activation="silu")
    outputs(made)
    made.conv.prepare(0, whole(4, 2, 3, dtype=torch.float16))
    assert outputs(made) == wanted(whole(4, 2, 3), None)


@pytest.mark.parametrize("value", [torch.ones(2, 1), torch.ones(1, 3), torch.ones(2, 3, dtype=torch.int32)])
def test_a_weight_that_no_longer_fits_is_refused_instead_of_being_broadcast(value: torch.Tensor) -> None:
    made = rig(3, 2, "bfloat16", weights=False)
    weight = whole(2, 2, 3)
    made.conv.prepare(0, weight)
    weight.data = value
    text = r"prepare of layer 0 of 'conv': weight is .*: expected floating \[2, 3\]"
    for _ in range(2):
        refused(made, ArgumentError, text, lambda: made.conv.decode(0, X[:1], made.pick(1)))
    weight.data = whole(5, 2, 3)
    made.conv.decode(0, X[:1], made.pick(1))


@pytest.mark.parametrize("way", CHANGES)
def test_a_prepared_value_is_made_again_when_its_tensor_changes(way: str) -> None:
    weight, made = whole(2, 2, 3, dtype=torch.bfloat16), []

    def make(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        made.append(weight.dtype)
        assert bias is None
        return weight.float() * 2

    prepared = Prepared(make, weight, None)
    first = prepared.get()
    assert first is prepared.get()
    assert len(made) == 1
    CHANGES[way](weight)
    assert torch.equal(prepared.get(), weight.float() * 2)
    assert not torch.equal(prepared.get(), first)
    assert made == [torch.bfloat16, weight.dtype]


def test_a_prepared_value_of_an_inference_tensor_is_made_every_time() -> None:
    with torch.inference_mode():
        weight = torch.ones(3)
        prepared = Prepared(lambda tensor: tensor * 2, weight)
        for value in (5.0, 6.0):
            weight.fill_(value)
            assert torch.equal(prepared.get(), torch.full((3,), 2 * value))


def test_what_changes_while_a_value_is_made_is_seen_afterwards() -> None:
    """As another thread may change a weight."""
    weight, made = torch.ones(3), []

    def make(tensor: torch.Tensor) -> float:
        value = float(tensor.sum())
        made.append(value)
        if len(made) < 3:
            weight.add_(1)
        return value

    prepared = Prepared(make, weight)
    prepared.get()
    assert prepared.get() == 9.0
    prepared.get()
    assert made == [3.0, 6.0, 9.0]


class Letting:
    """As it goes, another thread comes to the end of what it does."""

    other: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.other is not None:
            self.other()


def test_a_value_that_another_thread_made_of_earlier_tensors_is_not_taken_for_theirs() -> None:
    """One thread has made a value of them as they were, and keeps it while another keeps that of today."""
    weight, started, go = torch.ones(1), Event(), Event()

    def make(tensor: torch.Tensor) -> tuple[float, Letting]:
        value = float(tensor), Letting()
        if value[0] == 2.0:
            started.set()
            assert go.wait(60)
        return value

    prepared = Prepared(make, weight)
    earlier = Thread(target=prepared.get)

    def end() -> None:
        go.set()
        if current_thread() is not earlier:
            earlier.join(60)

    prepared.get()[1].other = end
    weight.fill_(2.0)
    earlier.start()
    assert started.wait(60)
    weight.fill_(3.0)
    prepared.get()
    end()
    assert prepared.get()[0] == 3.0


def test_a_failure_leaves_no_stale_value_behind() -> None:
    def make(tensor: torch.Tensor) -> int:
        if tensor.sum() > 3:
            raise ValueError("too much")
        return int(tensor.sum())

    weight = torch.ones(3)
    prepared = Prepared(make, weight)
    weight.mul_(2)
    for _ in range(2):
        with pytest.raises(ValueError, match="too much"):
            prepared.get()
    weight.fill_(0)
    assert prepared.get() == 0
