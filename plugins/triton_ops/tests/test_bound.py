"""Bound kernels: what is launched is what Triton would have chosen, and it is asked once; on a double of its driver."""

import gc
from collections.abc import Iterator
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import triton
from triton._C.libtriton import native_specialize_impl
from triton.backends.amd.compiler import HIPBackend
from triton.backends.compiler import BaseBackend, GPUTarget

from statehal.errors import ArgumentError
from statehal_triton_ops import bound
from statehal_triton_ops.compile.build import own_cache
from statehal_triton_ops.launch import OPTIONS, launch


class Pair(NamedTuple):
    """An argument with parts."""

    ptr: torch.Tensor
    stride: int


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def fill(pair, count, scale, size: triton.language.constexpr) -> None:  # type: ignore[no-untyped-def]
    i = triton.language.arange(0, size)
    triton.language.store(pair.ptr + i * pair.stride, scale, mask=i < count)


class Driver:
    """A driver of a GPU that is not there: kernels are compiled for it, and launches are noted."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, tuple[Any, ...]]] = []
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (1, 2, 32, 0, 1024),
            unload_module=lambda *_: None,
            get_device_properties=lambda _: {"max_shared_mem": 1 << 16},
        )

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        # after three sizes, a stream, a function and three hooks with their data, what the kernel is given
        return lambda *given: self.launched.append((metadata.hash, (given[:3], *given[9:])))

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    double = Driver()
    monkeypatch.setattr(triton.runtime.driver, "_active", double)
    monkeypatch.setattr(bound, "_bound", {})
    fill.device_caches.clear()
    with own_cache():
        yield double
    bound._bound.clear()  # kernels go while there is a driver
    fill.device_caches.clear()
    gc.collect()


def tensor(aligned: bool, dtype: torch.dtype) -> torch.Tensor:
    held = torch.zeros(64, dtype=dtype)
    return held if aligned else held[1:]


def test_what_is_launched_is_what_triton_chooses(driver: Driver) -> None:
    dtypes, strides, counts = (torch.float32, torch.bfloat16), (1, 3, 16, 1 << 31), (1, 16, 33, 1 << 33)
    for aligned, dtype, stride, count, size in product((True, False), dtypes, strides, counts, (16, 32)):
        arguments = Pair(tensor(aligned, dtype), stride), count, 2.0
        for _ in range(2):
            launch(fill, (3,), *arguments, num_warps=1, size=size)
            chosen = fill[3,](*arguments, num_warps=1, **OPTIONS, size=size)
            ours, theirs = driver.launched[-2:]
            assert ours == theirs
            assert ours[0] == chosen.hash
            driver.launched.clear()


def facts_of(one: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    bound.facts((one,), found)
    return tuple(found)


def test_facts_tell_apart_what_triton_does() -> None:
    edges = [sign * (1 << bits) + offset for sign in (1, -1) for bits in (31, 32, 62) for offset in (-16, -1, 0, 1, 16)]
    for one, other in combinations([*edges, 0, 1, 2, 16, True, False, 1.0, 2.0, None], 2):
        theirs = [native_specialize_impl(BaseBackend, each, False, True, True) for each in (one, other)]
        assert theirs[0] == theirs[1] or facts_of(one) != facts_of(other), (one, other)


def test_on_amd_they_tell_storages_of_2_gib_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (torch.empty(size, dtype=torch.uint8, device="meta") for size in (2**31 - 1, 2**31))
    asked = [HIPBackend.get_tensor_specialization(each[:8], align=True) for each in (small, large)]
    assert asked == ["DS", "D"]
    assert facts_of(small[:8]) == facts_of(large[:8])
    monkeypatch.setattr(bound, "_HIP", True)
    assert facts_of(small[:8]) != facts_of(large[:8])


def test_triton_is_asked_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Pair(tensor(True, torch.float32), 16)
    launch(fill, (1,), given, 5, 1.0, num_warps=1, size=16)

    def ask(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("Triton was asked again")

    monkeypatch.setattr(fill, "run", ask)
    other = Pair(tensor(True, torch.float32), 32)
    launch(fill, (7,), other, 9, 3.5, num_warps=1, size=16)
    assert driver.launched[-1][1] == ((7, 1, 1), other, 9, 3.5, 16)
    with pytest.raises(AssertionError, match="asked again"):
        launch(fill, (1,), given, 5, 1.0, num_warps=2, size=16)


def test_tensors_of_two_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(torch.Tensor):
        """A tensor that says it is on the second device."""

        def get_device(self) -> int:
            return 1

    near, far = torch.zeros(2), torch.zeros(2).as_subclass(Far)
    assert bound.facts((Pair(near, 1), 1, 2.0, None), []) == -1
    assert bound.facts((1, 2.0, None), []) is None
    with pytest.raises(ArgumentError, match=r"^fill: tensors of one launch are on the host and device 1: expected one"):
        launch(fill, (1,), Pair(near, 1), far, 1.0, size=16)
