"""What ``write`` stores: exactly the rows given, at addresses computed by integer loops, and no other byte."""

import pytest
import torch

import statehal
from reference.kv_oracle import LAYERS, LAYOUTS, Rig, bits, raw, rig
from statehal.spec import DTYPES


def check_write(made: Rig, dtype: str, seed: int = 2) -> None:
    count = len(made.physical)
    facts, torch_dtype = made.facts, getattr(torch, dtype)
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    for index, layer in enumerate(LAYERS):
        k = bits(count, facts.heads, facts.widths[0], dtype=torch_dtype, seed=seed + index)
        v = bits(count, facts.heads, facts.widths[1], dtype=torch_dtype, seed=seed + index + 50)
        given = raw(k), raw(v)
        expected = made.image()
        for row, token in enumerate(made.physical):
            made.put(expected, 0, index, token, k[row])
            made.put(expected, 1, index, token, v[row])
        writer.write(layer, made.ids, k, v)
        assert made.image() == expected
        assert (raw(k), raw(v)) == given


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_and_page_size(name: str, page_size: int) -> None:
    check_write(rig(name, page_size, "bfloat16", tokens=page_size + 2), "bfloat16")


@pytest.mark.parametrize("name", ["page-major NHD row", "nz block", "shuffled V"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_storage_dtype_keeps_every_bit(dtype: str, name: str) -> None:
    check_write(rig(name, 3, dtype), dtype)


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("name", LAYOUTS)
def test_no_token_and_one_token(name: str, tokens: int) -> None:
    made = rig(name, 3, "float16")
    made.ids, made.physical = made.ids[:tokens], made.physical[:tokens]
    check_write(made, "float16")


@pytest.mark.parametrize("name", ["page-major NHD row", "token-major row", "page-major HND block"])
def test_64_heads_of_128(name: str) -> None:
    made = rig(name, 2, "bfloat16", tokens=3, heads=64, widths=(128, 128))
    check_write(made, "bfloat16")


@pytest.mark.parametrize("name", LAYOUTS)
def test_slices_of_a_packed_qkv(name: str) -> None:
    made = rig(name, 3, "float32")
    facts, count = made.facts, len(made.physical)
    sizes = (2 * facts.heads * facts.widths[0], facts.heads * facts.widths[0], facts.heads * facts.widths[1])
    packed = bits(2 * count, sum(sizes), dtype=torch.float32, seed=9)
    before = raw(packed)
    _, k, v = packed[::2].split(sizes, dim=-1)
    k = k.unflatten(-1, (facts.heads, facts.widths[0]))
    v = v.unflatten(-1, (facts.heads, facts.widths[1]))
    assert not k.is_contiguous()
    expected = made.image()
    for row, token in enumerate(made.physical):
        made.put(expected, 0, 1, token, k[row])
        made.put(expected, 1, 1, token, v[row])
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[1], made.ids, k, v)
    assert made.image() == expected
    assert raw(packed) == before


@pytest.mark.parametrize("name", LAYOUTS)
def test_int32_ids_name_the_same_rows(name: str) -> None:
    made = rig(name, 3, "bfloat16")
    narrow = [tensor.to(torch.int32) for tensor in made.ids.tensors]
    made.ids = made.sub.space("kernel").assume(*narrow)
    check_write(made, "bfloat16")


def test_layers_that_share_storage_write_the_same_rows() -> None:
    spec = statehal.Attention("kv", (4, 9), 2, 8, "float32", shared=((5, 4), (11, 9)))
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([spec], tokens=8, page_size=4))
    ids = pool["kv"].kernel_ids(pool.alloc(3).token_ids())
    images = []
    for layer in (4, 5):
        k, v = (bits(3, 2, 8, dtype=torch.float32, seed=seed) for seed in (1, 2))
        hal.kv(pool["kv"]).write(layer, ids, k, v)
        images.append(raw(pool.buffer))
        hal.kv(pool["kv"]).write(layer, ids, torch.zeros(3, 2, 8), torch.zeros(3, 2, 8))
    assert images[0] == images[1] != bytes(len(images[0]))
