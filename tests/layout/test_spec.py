"""Specs: what they keep, and what they are refused with."""

from typing import Any

import pytest
import torch

from statehal.errors import ArgumentError, SpecError
from statehal.layout import conv_window, page_major
from statehal.spec import DTYPES, Attention, ConvRecurrent, ExtraField, Latent, dtype_name, itemsize, nan_byte


def attention(**change: Any) -> Attention:
    given: dict[str, Any] = {"name": "full", "layers": (0, 1), "kv_heads": 2, "head_dim": 4, "dtype": "bfloat16"}
    return Attention(**(given | change))


def recurrent(**change: Any) -> ConvRecurrent:
    given: dict[str, Any] = {"name": "gdn", "layers": (0, 1), "channels": 6, "width": 4, "dtype": "bfloat16"}
    return ConvRecurrent(**(given | change))


def extra(*, name: str = "x", shape: Any = (2,), dtype: str = "uint8", layers: Any = None, heads: int = 1) -> Attention:
    return attention(extra=(ExtraField(name, shape, dtype, layers, heads=heads),))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: attention(name=""), "^spec name '' must be letters, digits, '.', '_' and '-'$"),
        (lambda: attention(name="a b"), "^spec name 'a b' must be letters"),
        (lambda: attention(name="<svg>"), "^spec name '<svg>' must be letters"),
        (lambda: attention(layers=()), r"^spec 'full' has layers=\(\): expected one or more integers of at least 0$"),
        (lambda: attention(layers=3), r"^spec 'full' has layers=3: expected one or more integers of at least 0$"),
        (lambda: attention(layers="ab"), "^spec 'full' has layers='ab': expected one or more integers"),
        (lambda: attention(layers=(-1, 0)), r"^spec 'full' has layers=\(-1, 0\): expected one or more integers"),
        (lambda: attention(layers=(0, 1, 0)), r"^spec 'full' names a layer twice: layers=\(0, 1, 0\)$"),
        (
            lambda: attention(shared=((5, 2),)),
            r"^spec 'full' shares layer 5 with 2: the owner must be one of \(0, 1\) and the sharer none of them$",
        ),
        (lambda: attention(shared=((1, 0),)), "^spec 'full' shares layer 1 with 0: the owner must be one of"),
        (lambda: attention(shared=((5, 0), (5, 1))), r"^spec 'full' shares a layer with two owners: shared=\(\(5, 0\)"),
        (lambda: attention(ids="raw"), "^spec 'full' has ids='raw': expected 'virtual' or 'direct'$"),
        (lambda: attention(kv_heads=0), "^spec 'full' has kv_heads=0: expected an integer of at least 1$"),
        (lambda: attention(head_dim=-4), "^spec 'full' has head_dim=-4: expected an integer of at least 1$"),
        (lambda: attention(head_dim=4.0), r"^spec 'full' has head_dim=4\.0: expected an integer of at least 1$"),
        (lambda: attention(v_head_dim=0), "^spec 'full' has v_head_dim=0: expected an integer of at least 1$"),
        (lambda: attention(window=0), "^spec 'full' has window=0: expected an integer of at least 1$"),
        (lambda: attention(window=True), "^spec 'full' has window=True: expected an integer of at least 1$"),
        (lambda: attention(scales="tensor"), "^spec 'full' has scales='tensor': expected None or 'per_token_head'$"),
        (
            lambda: attention(dtype="bool"),
            "^dtype 'bool' cannot hold state: expected one of float32, float16, bfloat16, ",
        ),
        (lambda: Latent("mla", (0,), 0, 64, "bfloat16"), "^spec 'mla' has kv_lora_rank=0: expected an integer"),
        (lambda: Latent("mla", (0,), 512, 0, "bfloat16"), "^spec 'mla' has qk_rope_head_dim=0: expected an integer"),
        (
            lambda: extra(shape=()),
            r"^spec 'full' has row_shape of 'x'=\(\): expected one or more integers of at least 1$",
        ),
        (lambda: extra(shape=(4, 0)), r"^spec 'full' has row_shape of 'x'=\(4, 0\): expected one or more integers"),
        (lambda: extra(dtype="complex64"), "^dtype 'complex64' cannot hold state"),
        (lambda: extra(layers=(0, 9)), r"^spec 'full' has no layers \[9\]: its layers are \(0, 1\)$"),
        (lambda: extra(layers=(1, 1)), r"^spec 'full' names a layer twice: layers=\(1, 1\)$"),
        (lambda: extra(layers=()), r"^spec 'full' has layers=\(\): expected one or more"),
        (lambda: recurrent(width=1), "^spec 'gdn' has width=1: causal conv1d is defined for 2 to 8$"),
        (lambda: recurrent(width=9), "^spec 'gdn' has width=9: causal conv1d is defined for 2 to 8$"),
        (lambda: recurrent(width=4.0), r"^spec 'gdn' has width=4\.0: causal conv1d is defined for 2 to 8$"),
        (lambda: recurrent(channels=0), "^spec 'gdn' has channels=0: expected an integer of at least 1$"),
        (lambda: recurrent(verify_tokens=0), "^spec 'gdn' has verify_tokens=0: expected an integer of at least 1$"),
        (lambda: recurrent(sections=(2, 2)), r"^spec 'gdn': sections=\(2, 2\) do not sum to channels=6$"),
        (lambda: recurrent(sections=(8, -2)), r"^spec 'gdn' has sections=\(8, -2\): expected one or more integers"),
        (
            lambda: recurrent(sections=(2, 4), section_heads=(2,)),
            r"^spec 'gdn' has section_heads=\(2,\) for sections=\(2, 4\): expected one number for each, which divides",
        ),
        (lambda: recurrent(sections=(2, 4), section_heads=(2, 3)), r"has section_heads=\(2, 3\) for sections=\(2, 4\)"),
        (lambda: recurrent(sections=(2, 4), section_heads=(0, 1)), r"has section_heads=\(0, 1\): expected one or more"),
        (lambda: recurrent(section_heads=(1,)), r"^spec 'gdn' has section_heads=\(1,\) for sections=None: expected"),
        (
            lambda: extra(shape=(6, 4), heads=4),
            r"^spec 'full' has 4 heads of 'x' in rows of \(6, 4\): expected a divisor",
        ),
        (lambda: extra(shape=(6,), heads=0), "^spec 'full' has heads of 'x'=0: expected an integer of at least 1$"),
        (
            lambda: recurrent(extra=(ExtraField("replay", (3, 8), "float32", heads=3),)),
            r"expected \(3, ...\), a row for each of the window's, of heads=1$",
        ),
        (lambda: recurrent(state=()), r"^spec 'gdn' has state=\(\): expected one or more integers of at least 1$"),
        (lambda: recurrent(state=(2, 0)), r"^spec 'gdn' has state=\(2, 0\): expected one or more integers"),
        (lambda: recurrent(state_dtype="float64"), "^dtype 'float64' cannot hold state"),
    ],
)
def test_what_a_spec_is_refused_with(make: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make()


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_torchs(name: str) -> None:
    dtype = getattr(torch, name)
    assert dtype_name(dtype) == dtype_name(name) == name
    assert itemsize(name) == torch.empty(0, dtype=dtype).element_size()
    element = torch.full((itemsize(name),), nan_byte(name), dtype=torch.uint8).view(dtype)
    assert bool(element.float().isnan()) is dtype.is_floating_point


@pytest.mark.parametrize("window", [None, 7])
def test_what_attention_keeps(window: int | None) -> None:
    spec = attention(v_head_dim=3, scales="per_token_head", window=window, dtype=torch.float8_e4m3fn, shared=((7, 1),))
    layers = ((0,), (1, 7))
    assert [(f.name, f.row_shape, f.dtype, f.layers, f.row_bytes) for f in spec.fields()] == [
        ("k", (2, 4), "float8_e4m3fn", layers, 8),
        ("v", (2, 3), "float8_e4m3fn", layers, 6),
        ("k_scale", (2,), "float32", layers, 8),
        ("v_scale", (2,), "float32", layers, 8),
    ]
    assert spec.kind == "tokens"


@pytest.mark.parametrize("rows", [3, 6, 5 * 2])
def test_a_replay_ring_has_the_rows_of_its_window(rows: int) -> None:
    good = recurrent(verify_tokens=3, extra=(ExtraField("replay", (5, 8), "float32"),))
    assert conv_window(good).field("replay").row_shape == (5, 8)
    with pytest.raises(SpecError, match=rf"replay ring of row_shape=\({rows}, 8\): expected \(5, ...\)"):
        recurrent(verify_tokens=3, extra=(ExtraField("replay", (rows, 8), "float32"),))
    with pytest.raises(SpecError, match=r"replay ring of row_shape=\(5,\): expected \(5, ...\)"):
        recurrent(verify_tokens=3, extra=(ExtraField("replay", (5,), "float32"),))


def test_a_window_belongs_to_one_layer() -> None:
    with pytest.raises(
        SpecError, match=r"has shared=\(\(5, 0\),\): a window belongs to one layer, because every layer"
    ):
        recurrent(shared=((5, 0),))


@pytest.mark.parametrize("name", ["conv", "state", "cursor"])
def test_an_extra_field_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(SpecError, match=rf"extra fields named \['{name}'\], which a slot has anyway"):
        recurrent(extra=(ExtraField(name, (2,), "float32"),))


def test_what_a_latent_keeps_beside_an_extra_row_of_some_layers() -> None:
    spec = Latent("mla", (3, 5, 9), 512, 64, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8", (9, 3)),))
    assert [(f.name, f.row_shape, f.layers, f.row_bytes) for f in spec.fields()] == [
        ("latent", (1, 576), ((3,), (5,), (9,)), 1152),
        ("indexer", (132,), ((9,), (3,)), 132),
    ]
    indexer = page_major(spec, 16).field("indexer")
    assert indexer.address(3, 0) - indexer.address(9, 0) == 16 * 132
    with pytest.raises(ArgumentError, match=r"^field 'indexer' has no layer 5: its layers are \[3, 9\]$"):
        indexer.address(5, 0)


@pytest.mark.parametrize(("width", "verify", "rows"), [(2, 1, 1), (4, 1, 3), (4, 8, 10), (8, 3, 9)])
def test_a_window_holds_history_and_drafts(width: int, verify: int, rows: int) -> None:
    spec = recurrent(width=width, verify_tokens=verify, sections=(1, 2, 3))
    assert spec.window_rows == rows
    assert spec.kind == "slots"
    assert conv_window(spec).field("conv").row_shape == (rows, 6)


def test_shared_must_be_pairs() -> None:
    with pytest.raises(SpecError, match=r"has shared=\(5,\): expected pairs \(layer, owner\)"):
        Attention("full", (0,), kv_heads=1, head_dim=4, dtype="float32", shared=(5,))  # type: ignore[arg-type]
