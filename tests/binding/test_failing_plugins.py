"""A plugin that fails when it is asked is named; one that is asked of the wrong thing is not asked at all."""

from typing import Any

import pytest

from binding.binding_fakes import ATTENTION, CONV, Override, Recorder, allocate, bind
from statehal.errors import LayoutError, PluginBroken


def boom(request: Any) -> Any:
    raise RuntimeError("no\n such unit")


def narrow(request: Any) -> Any:
    return request.subpool.view("latent", 0)


def test_what_a_plugin_raises_is_its_error_and_names_the_hook() -> None:
    hal = bind({"chip": Override(kv=boom, conv=boom)})
    pool = allocate(hal)
    for make, sub, hook in (
        (hal.kv, pool["kv"], "statehal_fused_kv_write"),
        (hal.conv, pool["conv"], "statehal_causal_conv1d"),
    ):
        text = rf"^plugin 'chip' failed in {hook}: RuntimeError: no such unit \(fix: repair it, or set STATEHAL_DISABLE"
        with pytest.raises(PluginBroken, match=text) as caught:
            make(sub)
        assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(("spec", "hook"), [(ATTENTION, "layout"), (CONV, "conv_layout")])
def test_also_where_a_layout_is_asked_for(spec: Any, hook: str) -> None:
    hal = bind({"chip": Override(**{hook: boom})})
    with pytest.raises(PluginBroken, match=r"^plugin 'chip' failed in statehal_(pool|conv_state)_layout: RuntimeError"):
        hal.plan([spec], tokens=16)


def test_an_error_of_statehal_keeps_its_class_and_says_who_raised_it() -> None:
    hal = bind({"chip": Override(kv=narrow)})
    with pytest.raises(LayoutError, match="no field 'latent'") as caught:
        hal.kv(allocate(hal)["kv"])
    assert caught.value.__notes__ == ["raised by plugin 'chip' in statehal_fused_kv_write"]


def test_no_plugin_is_asked_for_operations_that_a_sub_pool_does_not_have() -> None:
    chip = Override(kv=Recorder("chip", "write"), conv=Recorder("chip", "decode"))
    hal = bind({"chip": chip})
    pool = allocate(hal)
    chip.requests.clear()
    with pytest.raises(
        LayoutError, match=r"^sub-pool 'conv' keeps slots, not tokens \(fix: use conv\(pool\['conv'\]\)\)$"
    ):
        hal.kv(pool["conv"])
    with pytest.raises(LayoutError, match=r"^sub-pool 'kv' keeps tokens, not slots \(fix: use kv\(pool\['kv'\]\)\)$"):
        hal.conv(pool["kv"])
    assert chip.requests == []
