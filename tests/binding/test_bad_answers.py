"""What a plugin answers is held against the contract; a bad answer is its error, and names it."""

from typing import Any

import pytest

from binding.binding_fakes import ATTENTION, CONV, Backend, Override, Recorder, allocate, bind
from statehal import Attention
from statehal.errors import LayoutError, PluginBroken
from statehal.layout import ConvStateLayout, PoolLayout, conv_window, page_major


def recorder_with(method: str, value: object) -> Recorder:
    made = Recorder("site", "write", "decode")
    setattr(made, method, value)
    return made


@pytest.mark.parametrize("value", [3, "write", object(), ()])
def test_a_method_that_cannot_be_called(value: object) -> None:
    hal = bind({"site": Override(kv=recorder_with("move", value), conv=recorder_with("commit", value))})
    pool = allocate(hal)
    with pytest.raises(
        PluginBroken, match=r"plugin 'site' answered statehal_fused_kv_write with move=.*cannot be called"
    ):
        hal.kv(pool["kv"])
    with pytest.raises(PluginBroken, match=r"plugin 'site' answered statehal_causal_conv1d with commit="):
        hal.conv(pool["conv"])


def test_also_where_another_plugin_goes_first() -> None:
    first, second = Recorder("a", "move"), recorder_with("move", 3)
    hal = bind({"a": Override(kv=first), "b": Override(kv=second)})
    pool = allocate(hal)
    with pytest.raises(PluginBroken, match="plugin 'b' answered statehal_fused_kv_write with move=3"):
        hal.kv(pool["kv"])


@pytest.mark.parametrize("value", ["write", 7, {"write": print}, [print], Recorder("site", "store")])
def test_an_answer_with_none_of_the_methods(value: Any) -> None:
    """Passed over, the plugin would seem installed and do nothing."""
    hal = bind({"chip": Backend("chip", kv=value)})
    pool = allocate(hal)
    text = (
        rf"plugin 'chip' answered statehal_fused_kv_write with a {type(value).__name__}, which has none of its methods "
        r"write, rope_write, write_latent, move \(fix: offer one of these, or answer None\)"
    )
    with pytest.raises(PluginBroken, match=text):
        hal.kv(pool["kv"])


def test_memory_operations_are_checked_when_binding() -> None:
    with pytest.raises(PluginBroken, match=r"plugin 'site' answered statehal_memory_ops with translate=1"):
        bind({"site": Override(memory=recorder_with("translate", 1))})


@pytest.mark.parametrize("answer", ["page-major", 3, ConvStateLayout(), page_major])
def test_a_pool_layout_of_the_wrong_type(answer: object) -> None:
    hal = bind({"site": Override(layout=lambda request: answer)})
    text = r"plugin 'site' answered statehal_pool_layout for 'kv' with a \w+: expected a PoolLayout \(fix: return"
    with pytest.raises(PluginBroken, match=text):
        hal.plan([ATTENTION], tokens=8)


@pytest.mark.parametrize("answer", ["ring", conv_window(CONV), 0])
def test_a_conv_state_layout_of_the_wrong_type(answer: object) -> None:
    hal = bind({"site": Override(conv_layout=lambda request: answer)})
    text = r"plugin 'site' answered statehal_conv_state_layout for 'conv' with a \w+: expected a ConvStateLayout"
    with pytest.raises(PluginBroken, match=text):
        hal.plan([CONV], requests=8, tokens=8)


@pytest.mark.parametrize(
    "other",
    [
        Attention("kv", (0,), 2, 4, "float16"),
        Attention("kv", (0,), 2, 5, "float32"),
        Attention("kv", (1,), 2, 4, "float32"),
        Attention("kv", (0, 1), 2, 4, "float32"),
        Attention("kv", (0,), 2, 4, "float32", scales="per_token_head"),
        Attention("kv", (0,), 2, 4, "float32", shared=((1, 0),)),
    ],
)
def test_a_layout_of_other_rows(other: Attention) -> None:
    def answer(request: Any) -> PoolLayout:
        return page_major(other, request.page_size)

    hal = bind({"site": Override(layout=answer)})
    with pytest.raises(
        PluginBroken, match=r"plugin 'site' laid out \{.*\} for 'kv': expected \{.*\}.* as \(dtype, layers"
    ):
        hal.plan([ATTENTION], tokens=8)


def test_a_layout_of_another_page_size() -> None:
    hal = bind({"site": Override(layout=lambda request: page_major(request.spec, 8))})
    with pytest.raises(PluginBroken, match=r"plugin 'site' laid out .* 8\).* expected .* 4\)"):
        hal.plan([ATTENTION], tokens=8, page_size=4)


def test_a_plugin_that_declines_leaves_the_layout_to_the_next() -> None:
    site = Override(layout=lambda request: page_major(request.spec, request.page_size, order="HND"))
    hal = bind({"a": Override(), "b": site})
    plan = hal.plan([ATTENTION], tokens=8, page_size=4)
    assert plan.subpools["kv"].layout.field("k").row_strides == (4 * 4 * 4, 4)


def test_what_a_layout_contradicts_is_said() -> None:
    hal = bind({"site": Override(conv_layout=lambda request: ConvStateLayout(forms=("diagonal",)))})  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="diagonal"):
        hal.plan([CONV], tokens=8, requests=8)
