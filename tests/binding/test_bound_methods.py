"""A bound method is the provider's own function; what holds it cannot be changed and may be shared."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

import statehal
from binding.binding_fakes import ATTENTION, Override, allocate, bind
from statehal.binding.checks import CheckedKVWriter
from statehal.errors import StaleIds, WrongIdSpace
from statehal.reference.causal_conv1d import ReferenceCausalConv1d
from statehal.reference.kv_writer import ReferenceKVWriter
from statehal.reference.memory_ops import ReferenceMemoryOps
from statehal.spec import Attention


class Site:
    def write(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("trace", [None, "0", "1"])
def test_with_tracing_off_nothing_stands_in_between(monkeypatch: pytest.MonkeyPatch, trace: str | None) -> None:
    monkeypatch.delenv("STATEHAL_TRACE", raising=False)
    if trace is not None:
        monkeypatch.setenv("STATEHAL_TRACE", trace)
    hal = bind({"site": Override()})
    pool = allocate(hal)
    kv: Any = hal.kv(pool["kv"])
    conv: Any = hal.conv(pool["conv"])
    memory: Any = hal.memory
    assert kv.write.__func__ is ReferenceKVWriter.write
    assert isinstance(kv.write.__self__, ReferenceKVWriter)
    assert kv.move.__self__ is kv.write.__self__
    for name in ("prepare", "prefill", "decode", "commit", "copy_slots", "zero_slots", "read_state"):
        assert getattr(conv, name).__func__ is getattr(ReferenceCausalConv1d, name)
    assert memory.translate.__func__ is ReferenceMemoryOps.translate
    hal = bind({"site": Override(kv=Site())})
    own: Any = hal.kv(allocate(hal)["kv"])
    assert own.write.__func__ is Site.write


def test_nothing_can_be_changed() -> None:
    hal = bind()
    kv: Any = hal.kv(allocate(hal)["kv"])
    with pytest.raises(
        AttributeError, match=r"bound methods cannot be changed: write \(fix: override them with a plugin"
    ):
        kv.write = print
    with pytest.raises(AttributeError, match="bound methods cannot be changed: write"):
        del kv.write
    with pytest.raises(AttributeError, match="bound methods cannot be changed: extra"):
        kv.extra = 1
    with pytest.raises(TypeError):
        kv.providers["write"] = "me"
    with pytest.raises(FrozenInstanceError):
        hal.device = "cuda"  # type: ignore[misc]
    assert kv.write.__func__ is ReferenceKVWriter.write
    assert repr(kv).startswith("BoundMethods({'write': 'reference'")


def test_a_misspelt_method_lists_those_there_are() -> None:
    hal = bind()
    kv: Any = hal.kv(allocate(hal)["kv"])
    there_are = r"\['write', 'rope_write', 'write_latent', 'move'\]"
    with pytest.raises(AttributeError, match=r"no method 'wirte' here: there are " + there_are):
        _ = kv.wirte


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_failed_copy_says_so(duplicate: Any) -> None:
    """Not by running out of stack: a half-made copy is asked for attributes before it has any."""
    hal = bind()
    kv = hal.kv(allocate(hal)["kv"])
    try:
        made = duplicate(kv)
    except (TypeError, AttributeError, pickle.PicklingError):
        return
    assert made.write.__func__ is ReferenceKVWriter.write


def test_threads_share_a_binding() -> None:
    hal = bind()
    plan = hal.plan([ATTENTION], tokens=64, page_size=4)

    def work(number: int) -> bool:
        pool = hal.allocate(plan)
        kv = hal.kv(pool["kv"])
        good = True
        for step in range(20):
            pages = pool.alloc(8)
            ids = pool["kv"].kernel_ids(pages.token_ids())
            rows = torch.full((8, 2, 4), float(number * 100 + step))
            kv.write(0, ids, rows, -rows)
            good &= torch.equal(hal.memory.gather(pool["kv"].view("k", 0), ids.tensor), rows)
            good &= torch.equal(hal.memory.gather(pool["kv"].view("v", 0), ids.tensor), -rows)
            pool.free(pages)
        pool.check()
        return good

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(16)))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda ids: pickle.loads(pickle.dumps(ids))])
def test_ids_survive_copying_and_pickling(duplicate: Any) -> None:
    hal = bind()
    spec = Attention("kv", (0,), 2, 4, "float32", v_head_dim=8)
    pool, other = allocate(hal, spec), allocate(hal, spec)
    sub = pool["kv"]
    virtual = duplicate(pool.alloc(3).token_ids())
    ids = duplicate(sub.kernel_ids(virtual))
    assert len(ids.tensors) == 2
    k, v = torch.randn(3, 2, 4), torch.randn(3, 2, 8)
    hal.kv(sub).write(0, ids, k, v)
    assert torch.equal(sub.view("k", 0)[ids.of(sub.layout.form("k"))], k)
    assert torch.equal(sub.view("v", 0)[ids.of(sub.layout.form("v"))], v)
    other.alloc(3)
    with pytest.raises(WrongIdSpace, match="but was given kernel tokens of 'kv'"):
        hal.kv(other["kv"]).write(0, ids, k, v)
    with pytest.raises(WrongIdSpace, match="takes virtual tokens of 'tokens'"):
        other["kv"].kernel_ids(virtual)
    pool.epoch += 1
    with pytest.raises(StaleIds, match="the ids are of epoch 0 and the pool is at 1"):
        hal.kv(sub).write(0, ids, k, v)
    assert duplicate(sub.kernel_ids(virtual)).epoch == 1


@pytest.mark.parametrize(("setting", "check", "expected"), [("1", None, True), ("0", None, False), ("1", False, False)])
def test_check_reaches_the_pool_its_spaces_and_the_methods(
    monkeypatch: pytest.MonkeyPatch, setting: str, check: bool | None, expected: bool
) -> None:
    monkeypatch.setenv("STATEHAL_CHECK", setting)
    hal = bind(check=check)
    pool = allocate(hal)
    write: Any = hal.kv(pool["kv"]).write
    assert isinstance(write.__self__, CheckedKVWriter) is expected
    assert hal.check is pool.checking is expected
    wild = torch.tensor([4 * 7])
    for name, kind in (("kv", "virtual"), ("kv", "physical"), ("kv", "kernel"), ("conv", "kernel")):
        space = pool[name].space(kind, "pages" if name == "conv" else "tokens")
        tensors = [wild] * max(1, len(space.key.forms))
        if expected:
            with pytest.raises(WrongIdSpace, match=r"ids \[28\] were declared .* but name no page in use there"):
                space.assume(*tensors)
        else:
            assert space.assume(*tensors).tensors[0] is wild


def test_check_given_to_bind_reaches_the_pool() -> None:
    assert allocate(bind(check=True)).checking
    assert not allocate(statehal.bind("cpu", "reference")).checking
