"""``write_latent``: the row ``[kv_c | k_pe]`` of a token, at addresses computed by integer loops."""

from typing import Any

import pytest
import torch

import statehal
from reference.kv_oracle import bits, raw
from statehal.errors import ArgumentError
from statehal.ids import KernelIds
from statehal.layout import layer_major, page_major, token_major
from statehal.pool import StatePool

RANK, ROPE, LAYERS, PAGE = 20, 6, (3, 1), 3
ROW = RANK + ROPE


def make(layout: Any = page_major, dtype: str = "bfloat16") -> tuple[StatePool, KernelIds, list[int]]:
    spec = statehal.Latent("mla", LAYERS, RANK, ROPE, dtype)
    pool = StatePool(
        statehal.plan([spec], tokens=12, page_size=PAGE, layouts=layout),
        "cpu",
        statehal.bind("cpu", "reference").memory,
    )
    virtual = pool.alloc(5).token_ids()
    return pool, pool["mla"].kernel_ids(virtual), pool["mla"].physical_ids(virtual).tensor.tolist()


def address(name: str, pool: StatePool, layer: int, token: int) -> int:
    size = pool["mla"].view("latent", LAYERS[0]).dtype.itemsize
    page, place = divmod(token, PAGE)
    if name == "page_major":
        return (page * len(LAYERS) * PAGE + layer * PAGE + place) * ROW * size
    if name == "token_major":
        return (token * len(LAYERS) + layer) * ROW * size
    return (layer * pool["mla"].layout.num_pages * PAGE + token) * ROW * size


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("layout", [page_major, token_major, layer_major])
def test_rows_lie_where_integer_loops_say(layout: Any, heads: bool, dtype: str) -> None:
    pool, ids, physical = make(layout, dtype)
    both = bits(5, ROW + 4, dtype=getattr(torch, dtype), seed=1)
    kv_c, k_pe = both[:, :RANK], both[:, RANK:ROW]
    expected = bytearray(raw(pool.buffer))
    for index, layer in enumerate(LAYERS):
        for row, token in enumerate(physical):
            data = raw(kv_c[row]) + raw(k_pe[row])
            at = address(layout.__name__, pool, index, token)
            expected[at : at + len(data)] = data
        statehal.bind("cpu", "reference").kv(pool["mla"]).write_latent(
            layer, ids, kv_c, k_pe[:, None] if heads else k_pe
        )
    assert raw(pool.buffer) == bytes(expected)


def test_padding_with_nan_and_no_tokens() -> None:
    pool, ids, _ = make()
    tensor = ids.tensor.clone()
    tensor[[0, 2]] = torch.tensor([-1, 2])
    kv_c, k_pe = torch.ones(5, RANK).bfloat16(), torch.full((5, ROPE), 2.0).bfloat16()
    kv_c[[0, 2]] = k_pe[[0, 2]] = float("nan")
    writer = statehal.bind("cpu", "reference").kv(pool["mla"])
    writer.write_latent(1, KernelIds(ids.space, [tensor], ids.epoch), kv_c, k_pe)
    assert pool.buffer.view(torch.bfloat16).float().sum() == 3 * (RANK + 2 * ROPE)
    before = raw(pool.buffer)
    writer.write_latent(1, ids[:0], kv_c[:0], k_pe[:0])
    assert raw(pool.buffer) == before


def good() -> dict[str, Any]:
    return {"kv_c": torch.ones(5, RANK).bfloat16(), "k_pe": torch.ones(5, ROPE).bfloat16()}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"kv_c": torch.ones(4, RANK).bfloat16()},
            r"kv_c is torch.bfloat16 \[4, 20\] .* expected torch.bfloat16 \[5, 20\]",
        ),
        ({"kv_c": torch.ones(5, RANK)}, r"kv_c is torch.float32 .* expected torch.bfloat16"),
        ({"kv_c": torch.ones(5, 2 * RANK).bfloat16()[:, ::2]}, r"last dimension of kv_c has stride 2"),
        (
            {"k_pe": torch.ones(5, ROPE + 1).bfloat16()},
            r"k_pe is torch.bfloat16 \[5, 7\] .* expected torch.bfloat16 \[5, 6\]",
        ),
        ({"k_pe": torch.ones(5, 2, ROPE).bfloat16()}, r"k_pe is torch.bfloat16 \[5, 2, 6\]"),
        ({"k_pe": torch.ones(5, ROPE).half()}, r"k_pe is torch.float16 .* expected torch.bfloat16"),
        ({"norm": torch.ones(RANK + 1)}, r"norm is torch.float32 \[21\] on cpu: expected floating \[20\] on cpu"),
        ({"norm": torch.ones(RANK).int()}, r"norm is torch.int32 \[20\] on cpu: expected floating"),
        ({"positions": torch.arange(5)}, r"positions without cos_sin: expected both, or neither for no rotation"),
        ({"cos_sin": torch.ones(9, ROPE)}, r"cos_sin without positions: expected both, or neither for no rotation"),
        ({"positions": torch.arange(4), "cos_sin": torch.ones(9, ROPE)}, r"positions is torch.int64 \[4\] on cpu"),
        ({"positions": torch.arange(5), "cos_sin": torch.ones(9, 5)}, r"even rope_dim of at most 6"),
        ({"positions": torch.arange(5), "cos_sin": torch.ones(9, 8)}, r"even rope_dim of at most 6"),
        ({"scale": 1.0}, r"scale is given: scales are for fp8 and int8 .* \(fix: leave scale out\)"),
        (
            {"kv_c": torch.ones(5, RANK - 1).bfloat16(), "k_pe": torch.ones(5, ROPE + 1).bfloat16()},
            r"kv_c is torch.bfloat16 \[5, 19\] .* expected torch.bfloat16 \[5, 20\]",
        ),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], text: str) -> None:
    pool, ids, _ = make()
    with pytest.raises(ArgumentError, match="write_latent to layer 3 of 'mla'.*" + text):
        statehal.bind("cpu", "reference").kv(pool["mla"]).write_latent(3, ids, **{**good(), **change})
    assert raw(pool.buffer) == bytes(pool.buffer.numel())


def test_another_layer_and_another_kind_of_sub_pool() -> None:
    pool, ids, _ = make()
    with pytest.raises(ArgumentError, match=r"no layer 2 here: the sub-pool's layers are \[1, 3\]"):
        statehal.bind("cpu", "reference").kv(pool["mla"]).write_latent(2, ids, **good())
    hal = statehal.bind("cpu", "reference")
    other = hal.allocate(hal.plan([statehal.Attention("kv", (0,), 1, 4, "bfloat16")], tokens=8, page_size=4))
    ids = other["kv"].kernel_ids(other.alloc(5).token_ids())
    with pytest.raises(ArgumentError, match=r"no field 'latent', only \['k', 'v'\]"):
        hal.kv(other["kv"]).write_latent(0, ids, **good())
