"""Methods of several plugins become one object: overriding plugins by name, then the chosen backend, the reference."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from binding.binding_fakes import ATTENTION, CONV, Backend, Override, Recorder, allocate, bind
from statehal.hookspecs import hookimpl
from statehal.layout import ConvStateLayout
from statehal.reference.causal_conv1d import ReferenceCausalConv1d


def providers(bound: Any) -> dict[str, str]:
    return dict(bound.providers)


class Watcher:
    """Wraps every answer of the conv hook, and counts the calls of decode that pass through it."""

    def __init__(self) -> None:
        self.wrapped: list[str] = []
        self.decoded = 0

    @hookimpl(wrapper=True)
    def statehal_causal_conv1d(self, request: Any) -> Iterator[None]:
        answers: Any = yield
        self.wrapped += [type(answer).__name__ for answer in answers]
        return [Watched(self, answer) for answer in answers]  # type: ignore[return-value]


class Watched:
    def __init__(self, watcher: Watcher, inner: Any) -> None:
        self._watcher, self._inner = watcher, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def decode(self) -> Any:
        inner = getattr(self._inner, "decode", None)
        if inner is None:
            return None

        def decode(*args: Any, **kwargs: Any) -> Any:
            self._watcher.decoded += 1
            return inner(*args, **kwargs)

        return decode


def test_a_decode_of_one_plugin_a_wrapper_and_a_partial_backend() -> None:
    site, chip = Recorder("site", "decode"), Recorder("chip", "prepare", "prefill", "decode")
    watcher = Watcher()
    plugins = {"site": Override(conv=site), "watch": watcher, "chip": Backend("chip", conv=chip)}
    hal = bind(plugins)
    conv: Any = hal.conv(allocate(hal)["conv"])
    assert providers(conv) == {
        "prepare": "chip, reference",
        "prefill": "chip",
        "decode": "site",
        "verify": "reference",
        "commit": "reference",
        "copy_slots": "reference",
        "zero_slots": "reference",
        "read_state": "reference",
    }
    assert watcher.wrapped == ["Recorder", "Recorder", "ReferenceCausalConv1d"]
    assert conv.decode(1, "x", out="y") == "site"
    assert conv.prefill() == "chip"
    assert site.calls == [("decode", (1, "x"), {"out": "y"})]
    assert [name for name, _, _ in chip.calls] == ["prefill"]
    assert watcher.decoded == 1


def test_overriding_plugins_go_by_name_and_other_backends_are_left_out() -> None:
    plugins = {
        "zeta": Override(kv=Recorder("zeta", "write", "move")),
        "alpha": Override(kv=Recorder("alpha", "write")),
        "chip": Backend("chip", kv=Recorder("chip", "write", "move", "rope_write")),
        "other": Backend("other", priority=1, kv=Recorder("other", "write", "write_latent")),
    }
    for order in (list(plugins), list(plugins)[::-1]):
        hal = bind({name: plugins[name] for name in order}, "chip")
        kv: Any = hal.kv(allocate(hal)["kv"])
        wanted = {"write": "alpha", "rope_write": "chip", "write_latent": "reference", "move": "zeta"}
        assert providers(kv) == wanted
        assert (kv.write(), kv.move(), kv.rope_write()) == ("alpha", "zeta", "chip")
    hal = bind(plugins, "reference")
    kv = hal.kv(allocate(hal)["kv"])
    wanted = {"write": "alpha", "rope_write": "reference", "write_latent": "reference", "move": "zeta"}
    assert providers(kv) == wanted


def test_each_hook_is_asked_once_with_the_request_of_that_sub_pool() -> None:
    site = Override(kv=Recorder("site", "write"), conv=Recorder("site", "decode"))
    hal = bind({"site": site}, check=True)
    pool = allocate(hal)
    site.requests.clear()
    hal.kv(pool["kv"])
    hal.conv(pool["conv"])
    assert [request.subpool for request in site.requests] == [pool["kv"], pool["conv"]]
    assert {request.device for request in site.requests} == {"cpu"}


def test_prepare_reaches_every_provider_in_use_and_no_other() -> None:
    site, idle = Recorder("site", "prepare", "decode"), Recorder("idle", "prepare", "decode")
    plugins = {"a-site": Override(conv=site), "chip": Backend("chip", conv=idle), "bare": Override()}
    hal = bind(plugins)
    pool = allocate(hal)
    conv = hal.conv(pool["conv"])
    weight = torch.ones(3, 4)
    conv.prepare(0, weight, activation="silu")
    assert site.calls == [("prepare", (0, weight), {"activation": "silu"})]
    assert idle.calls == []
    slots = pool["conv"].kernel_ids(pool.alloc(1, "conv").page_ids())
    out = conv.prefill(0, torch.ones(1, 3), torch.tensor([0, 1]), slots)  # the reference got the weights, too
    assert torch.allclose(out, torch.nn.functional.silu(torch.ones(1, 3)))


def test_a_decode_override_that_computes_gives_what_the_reference_gives() -> None:
    class Decode:
        """A decode of its own, with weights of its own."""

        def __init__(self, request: Any) -> None:
            inner = ReferenceCausalConv1d(request)
            self.prepare, self.decode = inner.prepare, inner.decode

    outputs = []
    for plugins in ({}, {"site": Override(conv=Decode)}):
        hal = bind(plugins)
        pool = allocate(hal)
        conv = hal.conv(pool["conv"])
        assert conv.providers["decode"] == ("site" if plugins else "reference")  # type: ignore[attr-defined]
        slots = pool["conv"].kernel_ids(pool.alloc(2, "conv").page_ids())
        conv.prepare(0, torch.arange(12.0).view(3, 4), torch.ones(3))
        x = torch.arange(21.0).view(7, 3)
        conv.prefill(0, x[:3], torch.tensor([0, 1, 3]), slots)
        conv.commit(slots, torch.ones(2, dtype=torch.int64))
        rows = []
        for step in (3, 5):
            rows.append(conv.decode(0, x[step : step + 2], slots))
            conv.commit(slots, torch.ones(2, dtype=torch.int64))
        outputs.append(torch.cat([*rows, conv.read_state(slots).reshape(-1, 3)]))
    assert torch.equal(outputs[0], outputs[1])


def test_memory_operations_are_merged_and_the_pool_uses_them() -> None:
    calls: list[Any] = []

    class Memory:
        def __init__(self, request: Any) -> None:
            from statehal.reference.memory_ops import ReferenceMemoryOps

            self._inner = ReferenceMemoryOps()

        def translate(self, *args: Any) -> None:
            calls.append(args)
            self._inner.translate(*args)

    hal = bind({"site": Override(memory=Memory)})
    found = providers(hal.memory)
    assert found.pop("translate") == "site"
    assert set(found.values()) == {"reference"}
    pool = allocate(hal, ATTENTION)
    assert pool["kv"].kernel_ids(pool.alloc(4).token_ids()).tensors[0].numel() == 4
    assert len(calls) == 1


@pytest.mark.parametrize(("flag", "expected"), [(True, True), (False, False), (None, False)])
def test_flags_hold_where_every_provider_in_use_has_them(flag: bool | None, expected: bool) -> None:
    memory = Recorder("site", "gather")
    if flag is not None:
        memory.graph_capturable = memory.host_sync_free = flag  # type: ignore[attr-defined]
    unused = Recorder("z", "gather")
    hal = bind({"site": Override(memory=memory), "z": Override(memory=unused)})
    assert (hal.memory.graph_capturable, hal.memory.host_sync_free) == (expected, expected)
    assert bind().memory.graph_capturable is bind().memory.host_sync_free is True


def test_the_conv_state_layout_of_an_overriding_plugin_is_used() -> None:
    site = Override(conv_layout=ConvStateLayout("channels_first", 8, "offset"))
    hal = bind({"site": site})
    pool = allocate(hal, CONV)
    assert pool["conv"].layout.conv == ConvStateLayout("channels_first", 8, "offset")
    assert pool["conv"].view("conv", 0).shape[2:] == (8, 3)
    assert hal.describe(pool).layouts == {"conv": "site"}
