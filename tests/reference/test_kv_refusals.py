"""What ``write`` refuses: texts that name the argument, and a pool left as it was."""

from typing import Any

import pytest
import torch

import statehal
from reference.kv_oracle import LAYERS, Rig, raw, rig
from statehal.errors import ArgumentError, LayoutError
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16", "uint8", "int64"])
@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
@pytest.mark.parametrize("scale", [2.0, 1, torch.ones(1)])
def test_scales_are_for_what_is_quantised(dtype: str, name: str, scale: float | torch.Tensor) -> None:
    made = rig("page-major NHD row", 3, dtype)
    text = (
        f"{name} is given: scales are for fp8 and int8 storage, and {name[0]!r} is stored as torch.{dtype} (fix: leave "
        f"{name} out)"
    )
    refused(made, text, ArgumentError, LAYERS[0], made.ids, *rows(getattr(torch, dtype)), **{name: scale})


SCALES: dict[str, tuple[Any, str]] = {
    "two elements": (torch.ones(2), "torch.float32 [2] on cpu"),
    "no element": (torch.ones(0), "torch.float32 [0] on cpu"),
    "a token and head": (torch.ones(5, 3), "torch.float32 [5, 3] on cpu"),
    "integers": (torch.ones(1, dtype=torch.int64), "torch.int64 [1] on cpu"),
    "another device": (torch.ones(1, device="meta"), "torch.float32 [1] on meta"),
    "zero": (0.0, "0.0"),
    "negative": (-1.0, "-1.0"),
    "nan": (float("nan"), "nan"),
    "infinite": (float("inf"), "inf"),
    "past float32": (1e39, "1e+39"),
    "below float32": (2.0**-150, "7.006492321624085e-46"),
    "zero as an int": (0, "0"),
    "text": ("1", "'1'"),
}


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "float8_e5m2fnuz", "int8"])
@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
@pytest.mark.parametrize(("scale", "got"), SCALES.values(), ids=SCALES)
def test_what_is_no_scale(name: str, storage: str, scale: Any, got: str) -> None:
    made = rig("page-major NHD row", 3, storage)
    expected = "a number, or one floating element on cpu" if isinstance(scale, torch.Tensor) else "a positive, finite"
    refused(made, f"{name} is {got}: expected {expected}", ArgumentError, 2, made.ids, *rows(), **{name: scale})


def test_the_value_of_a_scale_in_a_tensor_is_not_looked_at() -> None:
    made = rig("page-major NHD row", 3, "float8_e4m3fn")
    statehal.bind("cpu", "reference").kv(made.sub).write(2, made.ids, *rows(), k_scale=torch.zeros(1))


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "float8_e5m2fnuz", "int8"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int16, torch.uint8, torch.float8_e4m3fnuz])
def test_rows_that_cannot_be_quantised(storage: str, dtype: torch.dtype) -> None:
    made = rig("page-major NHD row", 3, storage)
    due = f"expected torch.float32 or torch.bfloat16 or torch.float16 or torch.{storage} [5, 3, 6] on cpu"
    text = f"k is {dtype} [5, 3, 6] on cpu: {due}"
    refused(made, text, ArgumentError, 2, made.ids, rows()[0].to(dtype), rows()[1])
    text = (
        f"v is {dtype} [5, 3, 4] on cpu: expected torch.float32 or torch.bfloat16 or torch.float16 or torch.{storage}"
    )
    refused(made, text, ArgumentError, 2, made.ids, rows()[0], rows()[1].to(dtype))


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "float8_e5m2fnuz", "int8"])
def test_rows_that_are_quantised_already_take_no_scale(storage: str) -> None:
    made = rig("page-major NHD row", 3, storage)
    dtype = getattr(torch, storage)
    due = "expected torch.float32 or torch.bfloat16 or torch.float16 [5, 3"
    narrow = torch.ones(GOOD[0]).to(dtype), torch.ones(GOOD[1]).to(dtype)
    text = f"k is {dtype} [5, 3, 6] on cpu: {due}, 6] on cpu"
    refused(made, text, ArgumentError, 2, made.ids, *narrow, k_scale=1.0)
    text = f"v is {dtype} [5, 3, 4] on cpu: {due}, 4] on cpu"
    refused(made, text, ArgumentError, 2, made.ids, *narrow, v_scale=1.0)
    writer, ids, pool = writer_of(statehal.Attention("kv", (0,), 2, 4, storage, scales="per_token_head"))
    wide = torch.ones(2, 2, 4)
    for row in ((wide.to(dtype), wide), (wide, wide.to(dtype))):
        with pytest.raises(ArgumentError, match=rf"^write to layer 0 of 'kv': [kv] is {dtype} .* or torch.float16 \["):
            writer.write(0, ids, *row)
    assert raw(pool.buffer) == bytes(pool.buffer.numel())


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "int64"])
def test_a_spec_with_scales_of_what_is_not_quantised(storage: str) -> None:
    writer, ids, pool = writer_of(statehal.Attention("kv", (0,), 2, 4, storage, scales="per_token_head"))
    row = torch.ones(2, 2, 4, dtype=getattr(torch, storage))
    text = (
        rf"^write to layer 0 of 'kv': its spec has scales='per_token_head': scales are for fp8 and int8 storage, and "
        rf"'k' is stored as torch.{storage} \(fix: a spec without scales\)$"
    )
    for scale in (None, 1.0):
        with pytest.raises(ArgumentError, match=text):
            writer.write(0, ids, row, row, k_scale=scale)
    assert raw(pool.buffer) == bytes(pool.buffer.numel())


@pytest.mark.parametrize("shape", [(5, 3, 7), (4, 3, 6), (5, 18)])
def test_shapes_and_strides_of_rows_that_are_quantised(shape: tuple[int, ...]) -> None:
    made = rig("page-major NHD row", 3, "int8")
    text = f"k is torch.float32 {list(shape)} on cpu: expected torch.float32 [5, 3, 6] on cpu"
    refused(made, text, ArgumentError, 2, made.ids, torch.ones(shape), rows()[1])
    text = "the last dimension of v has stride 2: expected 1"
    refused(made, text, ArgumentError, 2, made.ids, rows()[0], torch.ones(5, 3, 8)[..., ::2])


def writer_of(spec: statehal.Attention | statehal.Latent) -> tuple[KVWriter, Any, Any]:
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([spec], tokens=16, page_size=4))
    return hal.kv(pool[spec.name]), pool[spec.name].kernel_ids(pool.alloc(2).token_ids()), pool


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
