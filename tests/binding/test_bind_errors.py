"""What binding and planning refuse, in words."""

from typing import Any

import pytest
import torch

import statehal
from binding.binding_fakes import ATTENTION, CONV, Backend, Override, allocate, bind, registry
from statehal.errors import (
    AmbiguousBackend,
    ArgumentError,
    BackendNotReady,
    PlanError,
    StatehalError,
    UnknownBackend,
)
from statehal.layout import layer_major
from statehal.pool import StatePool


def absent_device() -> str:
    for device in ("cuda", "xpu", "mps"):
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError):
            return device
    pytest.skip("this torch can use every kind of device")


@pytest.mark.parametrize("device", ["cdua", "cpu:x", "", "cuda:-1", 3.5, None, ["cpu"]])
def test_what_is_no_device(device: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^device=.* is not a device"):
        statehal.bind(device, registry=registry())


def test_an_unknown_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    text = r"no backend 'referense' is installed; installed are 'reference' \(fix: did you mean 'reference'\?\)"
    with pytest.raises(UnknownBackend, match="^" + text):
        bind(backend="referense")
    monkeypatch.setenv("STATEHAL_BACKEND", "referense")
    with pytest.raises(UnknownBackend, match="^STATEHAL_BACKEND=referense: " + text):
        bind()


def test_a_backend_that_is_not_ready() -> None:
    device = absent_device()
    text = (
        rf"backend 'reference' is not ready for '{device}': torch cannot use '{device}': .* "
        r"\(fix: install a build of torch for that device\)"
    )
    with pytest.raises(BackendNotReady, match=text):
        statehal.bind(device, "reference", registry=registry())


def test_no_backend_for_a_kind_of_device() -> None:
    text = (
        r"no installed backend serves 'meta' devices; installed are 'reference' .*\(fix: install a backend for 'meta'"
    )
    with pytest.raises(BackendNotReady, match=text.replace(" .*", ".*")):
        statehal.bind("meta", registry=registry())


def test_a_tie() -> None:
    plugins = {"b": Backend("b"), "a": Backend("a")}
    text = (
        r"backends 'a' and 'b' are ready for 'cpu' with priority 5 \(fix: pass backend='a', or set STATEHAL_BACKEND=a"
    )
    with pytest.raises(AmbiguousBackend, match=text):
        bind(plugins)
    assert bind(plugins, "b").backend == "b"


def test_budgets_that_cannot_be_met() -> None:
    hal = bind()
    with pytest.raises(
        PlanError, match=r"100 bytes hold 0 pages of 256 bytes for 'kv'; at least 2 .* raise the budget to 512"
    ):
        hal.plan([ATTENTION], total_bytes=100, page_size=4)
    with pytest.raises(PlanError, match="give total_bytes or tokens, one of them: got total_bytes=None, tokens=None"):
        hal.plan([ATTENTION])
    with pytest.raises(PlanError, match="a plan needs specs of distinct names: got \\['kv', 'kv'\\]"):
        hal.plan([ATTENTION, ATTENTION], tokens=8)
    with pytest.raises(PlanError, match=r"page_size=0: expected an integer of at least 1"):
        hal.plan([ATTENTION], tokens=8, page_size=0)
    site = Override(layout=lambda request: layer_major(request.spec, request.page_size))
    with pytest.raises(PlanError, match=r"sub-pool 'kv' cannot share slabs.*\(fix: give its bytes in budgets=\{'kv'"):
        bind({"site": site}).plan([ATTENTION, CONV], total_bytes=1 << 16)


def test_hygiene_that_is_no_hygiene() -> None:
    hal = bind()
    plan = hal.plan([ATTENTION], tokens=8)
    with pytest.raises(ArgumentError, match="hygiene='clean': expected 'zero', 'none' or 'poison'"):
        hal.allocate(plan, hygiene="clean")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["kv", None, ATTENTION])
def test_what_is_no_sub_pool(wrong: Any) -> None:
    hal = bind()
    text = rf"expected a sub-pool on cpu, such as pool\['full'\]: got {type(wrong).__name__}"
    for call in (hal.kv, hal.conv):
        with pytest.raises(ArgumentError, match=text):
            call(wrong)
    pool = allocate(hal)
    with pytest.raises(ArgumentError, match=r"expected a sub-pool on cpu.*got StatePool"):
        hal.kv(pool)  # type: ignore[arg-type]


def test_a_sub_pool_on_another_device() -> None:
    hal = bind()
    pool = StatePool(hal.plan([ATTENTION], tokens=8), "meta", hal.memory)
    for call in (lambda: hal.kv(pool["kv"]), lambda: hal.describe(pool)):
        with pytest.raises(
            ArgumentError, match="expected a sub-pool on cpu, such as pool\\['full'\\]: got one on meta"
        ):
            call()


def test_a_name_that_is_no_sub_pool() -> None:
    with pytest.raises(ArgumentError, match=r"no sub-pool 'swa': this pool has \['kv', 'conv'\]"):
        allocate(bind())["swa"]


def test_every_error_is_one_of_statehals() -> None:
    for call in (lambda: statehal.bind("cdua"), lambda: bind(backend="x"), lambda: bind().plan([])):
        with pytest.raises(StatehalError):
            call()
