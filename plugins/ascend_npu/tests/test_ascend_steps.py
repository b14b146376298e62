"""Index tensors are made once a step, and never used when what they were made of may have changed."""

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ascend_rig import Requests

from statehal_ascend_npu.conv import steps
from statehal_ascend_npu.conv.plans import step_plan
from statehal_ascend_npu.conv.steps import StepCache


class Counter:
    """Counts what is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> int:
        self.made += 1
        return self.made


@pytest.fixture
def cache() -> StepCache[int]:
    return StepCache(torch.device("cpu"))


def test_layers_of_a_step_share_one(cache: StepCache[int]) -> None:
    ids, make = torch.tensor([1, 2]), Counter()
    assert [cache.get(layer, "decode", (ids, None), make) for layer in (3, 1, 9)] == [1, 1, 1]
    assert cache.get(3, "verify", (ids, None), make) == 2, "another kind of step"
    assert cache.get(1, "decode", (ids.clone(), None), make) == 3, "other tensors"


def test_a_write_is_noticed(cache: StepCache[int]) -> None:
    ids, make = torch.tensor([1, 2]), Counter()
    cache.get(0, "decode", (ids,), make)
    ids.copy_(torch.tensor([2, 1]))
    assert cache.get(1, "decode", (ids,), make) == 2


def test_a_layer_that_asks_again_is_in_another_step(cache: StepCache[int]) -> None:
    """Micro-batches through one buffer that is written past torch: layer 0 twice, then layer 1 twice."""
    ids, make = torch.tensor([1, 2]), Counter()
    cache.get(0, "decode", (ids,), make)
    ids.numpy()[:] = [3, 4]
    assert cache.get(0, "decode", (ids,), make) == 2
    ids.numpy()[:] = [1, 2]
    assert cache.get(1, "decode", (ids,), make) == 3
    ids.numpy()[:] = [3, 4]
    assert cache.get(1, "decode", (ids,), make) == 4
    cache.clear()
    assert [cache.get(layer, "decode", (ids,), make) for layer in (0, 1)] == [5, 5]


def test_tensors_that_count_no_writes_are_not_trusted(cache: StepCache[int]) -> None:
    make = Counter()
    with torch.inference_mode():
        ids = torch.tensor([1, 2])
        cache.get(0, "decode", (ids,), make)
        assert cache.get(1, "decode", (ids,), make) == 2


def test_a_graph_contains_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    device, ids, make = torch.device("meta"), torch.tensor([1, 2]), Counter()
    capturing = types.SimpleNamespace(is_current_stream_capturing=lambda: True)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: capturing)
    cache: StepCache[int] = StepCache(device)
    assert [cache.get(layer, "decode", (ids,), make) for layer in (0, 1)] == [1, 2]


def test_what_is_kept_is_bounded(cache: StepCache[int]) -> None:
    """Where an overriding plugin commits, nobody says that a step has ended."""
    make = Counter()
    for _ in range(5 * steps.MOST):
        cache.get(0, "decode", (torch.tensor([1]),), make)
    assert len(cache._values) <= steps.MOST


def test_index_tensors_are_cast_once_a_step(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    operators("current")
    run = Requests(4, 4, layers=(0, 1, 2))
    made: list[Any] = []

    def spy(*args: Any) -> Any:
        made.append(args)
        return step_plan(*args)

    monkeypatch.setattr("statehal_ascend_npu.causal_conv1d.step_plan", spy)
    for step in range(1, 4):
        x = run.x(run.rows(4))
        for layer in run.spec.layers:
            run.conv.verify(layer, x, run.slots[:1])
        assert len(made) == 3 * step, "slices are other tensors each time"
        run.conv.commit(run.slots[:1], torch.tensor([2]))
    made.clear()
    slots = run.slots[:1]
    for step in range(1, 4):
        x = run.x(run.rows(4))
        for layer in run.spec.layers:
            run.conv.verify(layer, x, slots)
        run.conv.commit(slots, torch.tensor([2]))
        assert len(made) == step
