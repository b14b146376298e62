"""What ``write`` refuses: texts that name the argument, and a pool left as it was."""

from typing import Any

import pytest
import torch

import statehal
from reference.kv_oracle import LAYERS, Rig, raw, rig
from statehal.errors import ArgumentError, LayoutError, Unsupported
from statehal.hookspecs import KVWriter

GOOD = (5, 3, 6), (5, 3, 4)


def rows(dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(GOOD[0], dtype=dtype), torch.ones(GOOD[1], dtype=dtype)


def refused(made: Rig, text: str, error: type[Exception], *arguments: Any, **options: Any) -> None:
    before = made.image()
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    with pytest.raises(error) as caught:
        writer.write(*arguments, **options)
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"write to layer {arguments[0]} of 'kv': ")
    assert made.image() == before


@pytest.fixture
def made() -> Rig:
    return rig("page-major NHD row", 3, "bfloat16")


@pytest.mark.parametrize("shape", [(4, 3, 6), (6, 3, 6), (5, 2, 6), (5, 3, 7), (5, 18), (5, 3, 6, 1), ()])
def test_the_shape_of_k(made: Rig, shape: tuple[int, ...]) -> None:
    text = f"k is torch.bfloat16 {list(shape)} on cpu: expected torch.bfloat16 [5, 3, 6] on cpu"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, torch.ones(shape, dtype=torch.bfloat16), rows()[1])


def test_the_shape_of_v(made: Rig) -> None:
    text = "v is torch.bfloat16 [5, 3, 6] on cpu: expected torch.bfloat16 [5, 3, 4] on cpu"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, rows()[0], rows()[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int16])
def test_another_dtype_names_both(made: Rig, dtype: torch.dtype) -> None:
    text = f"k is {dtype} [5, 3, 6] on cpu: expected torch.bfloat16 [5, 3, 6] on cpu"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, rows(dtype)[0], rows()[1])
    text = f"v is {dtype} [5, 3, 4] on cpu: expected torch.bfloat16 [5, 3, 4] on cpu"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, rows()[0], rows(dtype)[1])


def test_another_device(made: Rig) -> None:
    text = "v is torch.bfloat16 [5, 3, 4] on meta: expected torch.bfloat16 [5, 3, 4] on cpu"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, rows()[0], rows()[1].to("meta"))


def test_a_last_dimension_that_is_not_contiguous(made: Rig) -> None:
    k = torch.ones(5, 3, 12, dtype=torch.bfloat16)[..., ::2]
    text = "the last dimension of k has stride 2: expected 1 (fix: pass k.contiguous())"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, k, rows()[1])
    v = torch.ones(5, 4, 3, dtype=torch.bfloat16).transpose(1, 2)
    text = "the last dimension of v has stride 3: expected 1 (fix: pass v.contiguous())"
    refused(made, text, ArgumentError, LAYERS[0], made.ids, rows()[0], v)


@pytest.mark.parametrize("layer", [0, 3, -1, 10**9])
def test_a_layer_that_is_not_there(made: Rig, layer: int) -> None:
    text = f"no layer {layer} here: the sub-pool's layers are [2, 4, 7]"
    refused(made, text, ArgumentError, layer, made.ids, *rows())


@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
@pytest.mark.parametrize("scale", [2.0, torch.ones(1)])
def test_scales_are_not_offered(made: Rig, name: str, scale: float | torch.Tensor) -> None:
    text = f"the reference backend does not offer {name} (fix: leave it out, or use another backend)"
    refused(made, text, Unsupported, LAYERS[0], made.ids, *rows(), **{name: scale})


def writer_of(spec: statehal.Attention | statehal.Latent) -> tuple[KVWriter, Any, Any]:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([spec], tokens=16, page_size=4))
    return hal.kv(pool[spec.name]), pool[spec.name].kernel_ids(pool.alloc(2).token_ids()), pool


def test_scales_of_a_sub_pool_that_stores_them_are_not_left_stale() -> None:
    """Rows stored without their scales would be read back multiplied with whatever the scale fields held."""
    writer, ids, pool = writer_of(statehal.Attention("kv", (0,), 2, 4, "float8_e4m3fn", scales="per_token_head"))
    before = raw(pool.buffer)
    row = torch.ones(2, 2, 4).to(torch.float8_e4m3fn)
    with pytest.raises(Unsupported, match=r"write to layer 0 of 'kv'.*scale"):
        writer.write(0, ids, row, row)
    assert raw(pool.buffer) == before


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "float8_e5m2fnuz", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_quantising_write_is_not_offered(dtype: torch.dtype, storage: str) -> None:
    writer, ids, pool = writer_of(statehal.Attention("kv", (0,), 2, 4, storage))
    wide, narrow = torch.ones(2, 2, 4, dtype=dtype), torch.ones(2, 2, 4).to(getattr(torch, storage))
    for name, rows in (("k", (wide, narrow)), ("v", (narrow, wide))):
        text = rf"write to layer 0 of 'kv'.* does not offer storing {name} of {dtype} as torch.{storage} \(fix: pass "
        with pytest.raises(Unsupported, match=text):
            writer.write(0, ids, *rows)
    writer, ids, latent = writer_of(statehal.Latent("mla", (0,), 8, 4, storage))
    with pytest.raises(Unsupported, match=rf"does not offer storing kv_c of {dtype} as torch.{storage}"):
        writer.write_latent(0, ids, torch.ones(2, 8, dtype=dtype), torch.ones(2, 4, dtype=dtype))
    assert not latent.buffer.any()
    assert raw(pool.buffer) == bytes(pool.buffer.numel())


def test_a_latent_sub_pool_has_no_k() -> None:
    writer, ids, _ = writer_of(statehal.Latent("mla", (0,), 8, 4, "float32"))
    with pytest.raises(ArgumentError, match=r"write to layer 0 of 'mla'.*no field 'k', only \['latent'\]"):
        writer.write(0, ids, torch.ones(2, 1, 8), torch.ones(2, 1, 4))


def test_slots_are_not_tokens() -> None:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([statehal.ConvRecurrent("conv", (0,), 4, 4, "float32")], tokens=4, requests=2))
    with pytest.raises(LayoutError, match=r"'conv' keeps slots, not tokens \(fix: use conv\(pool\['conv'\]\)\)"):
        hal.kv(pool["conv"])


@pytest.mark.parametrize("device", ["cpu:0"])
def test_a_numbered_device_is_the_device_its_tensors_are_on(device: str) -> None:
    hal = statehal.bind(device, "reference")
    pool = hal.allocate(hal.plan([statehal.Attention("kv", (0,), 2, 4, "float32")], tokens=16, page_size=4))
    ids = pool["kv"].kernel_ids(pool.alloc(2).token_ids())
    rows = torch.ones(2, 2, 4, device=device)
    hal.kv(pool["kv"]).write(0, ids, rows, rows)
    assert pool.buffer.view(torch.float32).sum() == 32
    statehal.bind("cpu", "reference").kv(pool["kv"]).write(0, ids, rows, rows)
