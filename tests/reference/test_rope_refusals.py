"""What ``rope_write`` refuses: texts that name the argument, with the pool and the outputs left as they were."""

from typing import Any

import pytest
import torch

import statehal
from reference.kv_oracle import LAYERS, Rig, raw, rig
from reference.rope_oracle import table
from statehal.errors import ArgumentError, WrongIdSpace

KIND = torch.bfloat16


def good() -> dict[str, Any]:
    return {
        "q": torch.ones(5, 4, 6, dtype=KIND),
        "k": torch.ones(5, 3, 6, dtype=KIND),
        "v": torch.ones(5, 3, 4, dtype=KIND),
        "positions": torch.arange(5),
        "cos_sin": table(9, 4),
    }


def refused(made: Rig, text: str, **change: Any) -> None:
    """The call with some arguments changed is refused in these words, and nothing is written, q and k included."""
    arguments = good() | change
    outs = {name: arguments[name] for name in ("q_out", "k_out") if name in arguments}
    arguments = {"q_out": torch.zeros(5, 4, 6, dtype=KIND), "k_out": torch.zeros(5, 3, 6, dtype=KIND)} | arguments
    before = made.image()
    with pytest.raises(ArgumentError) as caught:
        statehal.bind("cpu", "reference").kv(made.sub).rope_write(LAYERS[0], made.ids, **arguments)
    assert str(caught.value).startswith("rope_write to layer 7 of 'kv': ")
    assert text in str(caught.value)
    assert made.image() == before
    for name in {"q_out", "k_out"} - set(outs):
        assert not arguments[name].any()


def wide(*shape: int, dtype: torch.dtype = KIND) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


STRIDED = wide(5, 3, 12)[..., ::2]
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "q rows": ({"q": wide(4, 4, 6)}, "q is torch.bfloat16 [4, 4, 6] on cpu: expected torch.bfloat16 [5, 4, 6]"),
    "q width": ({"q": wide(5, 4, 8)}, "q is torch.bfloat16 [5, 4, 8] on cpu: expected torch.bfloat16 [5, 4, 6]"),
    "q axes": ({"q": wide(5, 24)}, "q is torch.bfloat16 [5, 24]"),
    "q dtype": ({"q": wide(5, 4, 6, dtype=torch.float16)}, "q is torch.float16 [5, 4, 6] on cpu: expected torch.bfl"),
    "q stride": ({"q": STRIDED}, "the last dimension of q has stride 2"),
    "k heads": ({"k": wide(5, 4, 6)}, "k is torch.bfloat16 [5, 4, 6] on cpu: expected torch.bfloat16 [5, 3, 6]"),
    "k dtype": ({"k": wide(5, 3, 6, dtype=torch.float32)}, "k is torch.float32 [5, 3, 6] on cpu: expected torch.bf"),
    "k stride": ({"k": STRIDED}, "the last dimension of k has stride 2"),
    "v shape": ({"v": wide(5, 3, 6)}, "v is torch.bfloat16 [5, 3, 6] on cpu: expected torch.bfloat16 [5, 3, 4]"),
    "v dtype": ({"v": wide(5, 3, 4, dtype=torch.int16)}, "v is torch.int16 [5, 3, 4] on cpu: expected torch.bfloat16"),
    "v device": ({"v": wide(5, 3, 4).to("meta")}, "v is torch.bfloat16 [5, 3, 4] on meta"),
    "positions count": ({"positions": torch.arange(4)}, "positions is torch.int64 [4] on cpu: expected int32 or int64"),
    "positions dtype": ({"positions": torch.ones(5)}, "positions is torch.float32 [5] on cpu: expected int32 or int64"),
    "positions rows": ({"positions": torch.zeros(3, 5).long()}, "positions is torch.int64 [3, 5] on cpu: expected"),
    "one row for sections": ({"rope_sections": (1, 1, 0)}, "positions is torch.int64 [5] on cpu: expected int32 or in"),
    "two sections": ({"rope_sections": (1, 1)}, "rope_sections is (1, 1): expected three counts that sum to 2"),
    "sections too large": ({"rope_sections": (1, 1, 1)}, "rope_sections is (1, 1, 1): expected three counts"),
    "sections below zero": ({"rope_sections": (3, -1, 0)}, "rope_sections is (3, -1, 0): expected three counts"),
    "odd rope_dim": (
        {"cos_sin": wide(9, 5)},
        "cos_sin is torch.bfloat16 [9, 5] on cpu: expected [max_position, rope_dim]",
    ),
    "rope_dim too large": ({"cos_sin": wide(9, 8)}, "with an even rope_dim of at most 6"),
    "no rope_dim": ({"cos_sin": wide(9, 0)}, "cos_sin is torch.bfloat16 [9, 0] on cpu: expected [max_position"),
    "no position": ({"cos_sin": wide(0, 4)}, "cos_sin is torch.bfloat16 [0, 4] on cpu: expected [max_position"),
    "axes of cos_sin": ({"cos_sin": wide(9, 2, 2)}, "cos_sin is torch.bfloat16 [9, 2, 2] on cpu: expected floating"),
    "integers in cos_sin": (
        {"cos_sin": torch.ones(9, 4).long()},
        "cos_sin is torch.int64 [9, 4] on cpu: expected floating",
    ),
    "bytes in cos_sin": ({"cos_sin": torch.ones(9, 4).to(torch.float8_e5m2)}, "cos_sin is torch.float8_e5m2 [9, 4]"),
    "device of cos_sin": (
        {"cos_sin": wide(9, 4).to("meta")},
        "cos_sin is torch.bfloat16 [9, 4] on meta: expected floating [9, 4] on cpu",
    ),
    "q_norm": ({"q_norm": torch.ones(4)}, "q_norm is torch.float32 [4] on cpu: expected floating [6] on cpu"),
    "k_norm": ({"k_norm": torch.ones(6).int()}, "k_norm is torch.int32 [6] on cpu: expected floating [6] on cpu"),
    "k_norm device": ({"k_norm": torch.ones(6).to("meta")}, "k_norm is torch.float32 [6] on meta"),
    "q_out shape": (
        {"q_out": wide(5, 3, 6)},
        "q_out is torch.bfloat16 [5, 3, 6] on cpu: expected torch.bfloat16 [5, 4",
    ),
    "q_out dtype": ({"q_out": torch.zeros(5, 4, 6)}, "q_out is torch.float32 [5, 4, 6] on cpu: expected torch.bfloat1"),
    "k_out shape": (
        {"k_out": wide(5, 4, 6)},
        "k_out is torch.bfloat16 [5, 4, 6] on cpu: expected torch.bfloat16 [5, 3",
    ),
    "k_out dtype": ({"k_out": torch.zeros(5, 3, 6)}, "k_out is torch.float32 [5, 3, 6] on cpu: expected torch.bfloat1"),
    "k_out stride": ({"k_out": STRIDED}, "the last dimension of k_out has stride 2"),
    "k_scale": ({"k_scale": 1.0}, "k_scale is given: scales are for fp8 and int8 storage, and 'k' is stored as"),
    "v_scale": ({"v_scale": torch.ones(1)}, "v_scale is given: scales are for fp8 and int8 storage, and 'v' is stored"),
}


@pytest.mark.parametrize(("change", "text"), CHANGES.values(), ids=CHANGES)
def test_each_argument(change: dict[str, Any], text: str) -> None:
    refused(rig("page-major NHD row", 3, "bfloat16"), text, **change)


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "int8"])
def test_rows_of_one_byte_cannot_be_rotated(storage: str) -> None:
    made, dtype = rig("page-major NHD row", 3, storage), getattr(torch, storage)
    rows = {name: good()[name].to(dtype) for name in ("q", "k", "v")}
    refused(made, f"k is {dtype} [5, 3, 6] on cpu: expected torch.float32 or torch.bfloat16 or torch.float16", **rows)
    refused(made, f"v is {dtype} [5, 3, 4] on cpu: expected torch.bfloat16 [5, 3, 4]", v=rows["v"])
    refused(made, "v_scale is -1.0: expected a positive, finite number", v_scale=-1.0)


@pytest.mark.parametrize("storage", ["int64", "uint8", "int32"])
def test_storage_that_is_no_float(storage: str) -> None:
    text = f"'k' is stored as torch.{storage}: expected a floating dtype or int8 (fix: use write)"
    refused(rig("page-major NHD row", 3, storage), text)


def test_scales_of_what_is_not_quantised_and_other_sub_pools() -> None:
    hal = statehal.bind("cpu", "reference")
    specs = (
        statehal.Attention("kv", (0,), 3, 6, "bfloat16", v_head_dim=4, scales="per_token_head"),
        statehal.Latent("mla", (1,), 8, 4, "bfloat16"),
    )
    pool = hal.allocate(hal.plan(specs, tokens=16, page_size=4))
    virtual = pool.alloc(5).token_ids()
    ids = pool["kv"].kernel_ids(virtual)
    with pytest.raises(ArgumentError, match=r"^rope_write to layer 0 of 'kv': its spec has scales='per_token_head'"):
        hal.kv(pool["kv"]).rope_write(0, ids, **good())
    with pytest.raises(ArgumentError, match=r"^rope_write to layer 2 of 'kv': no layer 2 here"):
        hal.kv(pool["kv"]).rope_write(2, ids, **good())
    with pytest.raises(WrongIdSpace, match=r"^rope_write to layer 1 of 'mla' takes "):
        hal.kv(pool["mla"]).rope_write(1, ids, **good())
    with pytest.raises(ArgumentError, match=r"^rope_write to layer 1 of 'mla': .* no field 'k', only \['latent'\]"):
        hal.kv(pool["mla"]).rope_write(1, pool["mla"].kernel_ids(virtual), **good())
    assert raw(pool.buffer) == bytes(pool.buffer.numel())
