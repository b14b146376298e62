"""A pool is no part of a graph: inputs that require gradients are stored like any others, under every grad mode."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import statehal
from reference.conv_oracle import rig as conv_rig
from reference.kv_oracle import LAYERS, raw
from reference.kv_oracle import rig as kv_rig
from statehal.layout import ConvStateLayout
from statehal.reference.memory_ops import ReferenceMemoryOps

MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["page-major NHD row", "nz block"])
def test_kv_writes(name: str, mode: str) -> None:
    made = kv_rig(name, 3, "float32")
    expected = made.image()
    with MODES[mode]():
        k, v = (
            torch.randn(5, made.facts.heads, width, requires_grad=mode == "grad") * 2 for width in made.facts.widths
        )
        assert k.requires_grad == (mode == "grad")
        writer = statehal.bind("cpu", "reference").kv(made.sub)
        writer.write(LAYERS[0], made.ids, k, v)
        writer.move(made.ids[:1], made.ids[1:2])
    for row, token in enumerate(made.physical):
        made.put(expected, 0, 0, token, k[row].detach())
        made.put(expected, 1, 0, token, v[row].detach())
    assert not made.pool.buffer.requires_grad
    assert not made.sub.view("k", LAYERS[0], "page").requires_grad
    origin, target = made.physical[1], made.physical[0]
    for field in (0, 1):
        for layer in range(len(LAYERS)):
            pairs = zip(made.elements(field, layer, origin), made.elements(field, layer, target), strict=True)
            for a, b in pairs:
                expected[b : b + 4] = expected[a : a + 4]
    assert made.image() == expected


def test_latent_writes_and_scatter() -> None:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([statehal.Latent("mla", (0,), 8, 4, "float32")], tokens=8, page_size=4))
    ids = pool["mla"].kernel_ids(pool.alloc(2).token_ids())
    c, p = torch.ones(2, 8, requires_grad=True), torch.ones(2, 4, requires_grad=True)
    hal.kv(pool["mla"]).write_latent(0, ids, c, p)
    assert not pool.buffer.requires_grad
    assert pool.buffer.view(torch.float32).sum() == 24
    view = torch.zeros(6, 3)
    ReferenceMemoryOps().scatter(view, torch.tensor([2]), torch.ones(1, 3, requires_grad=True), first=1)
    assert not view.requires_grad
    assert view.sum() == 3


def test_nothing_keeps_the_inputs_alive() -> None:
    """A store that autograd recorded would keep the graph of every step that ever wrote."""
    made, conv = kv_rig("page-major NHD row", 3, "float32"), conv_rig(4, 3)
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    leaves = [torch.ones(shape, requires_grad=True) for shape in ((5, 3, 6), (5, 3, 4), (2, 3))]
    seen = [weakref.ref(leaf) for leaf in leaves]
    writer.write(LAYERS[0], made.ids, leaves[0] * 2, leaves[1] * 2)
    conv.conv.prefill(0, leaves[2] * 2, torch.tensor([0, 1, 2]), conv.pick(1, 2))
    conv.conv.decode(0, leaves[2] * 2, conv.pick(1, 2))
    leaves.clear()
    gc.collect()
    assert [one() for one in seen] == [None] * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", [ConvStateLayout(), ConvStateLayout("channels_first", protocol="offset")])
def test_conv(window: ConvStateLayout, mode: str) -> None:
    outputs, images = [], []
    for chosen in ("no_grad", mode):
        made = conv_rig(4, 3, window=window, verify_tokens=2)
        with MODES[chosen]():
            x = torch.arange(21.0, requires_grad=True).view(7, 3)
            weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4))
            made.conv.prepare(0, weight, torch.nn.Parameter(torch.ones(3)), activation="silu")
            first = made.conv.prefill(0, x[:5], torch.tensor([0, 2, 5]), made.pick(1, 2))
            made.commit(1, 2)
            second = made.conv.decode(0, x[5:], made.pick(2, 1))
            made.commit(2, 1)
        assert not first.requires_grad
        assert not second.requires_grad
        assert not made.pool.buffer.requires_grad
        outputs.append(raw(torch.cat([first, second])))
        images.append(raw(made.pool.buffer))
    assert outputs[0] == outputs[1]
    assert images[0] == images[1]
