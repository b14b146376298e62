"""Small models of every kind, with their rows written out as literals, and what every byte of them is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import shake_128

from statehal.layout import (
    ConvStateLayout,
    FieldLayout,
    PoolLayout,
    conv_window,
    layer_major,
    nz,
    page_major,
    token_major,
    x_packed,
)
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec, itemsize

Layout = Callable[[Spec, int], PoolLayout]


@dataclass(frozen=True)
class Row:
    """One kind of row of a whole model, as a literal: nothing here is asked of the code under test.

    Attributes:
        heads: of the model; 1 for what every rank keeps whole.
        head_bytes: of one head.
        itemsize: bytes of an element.
        layers: that own it.
        live: rows of a point: of the window, or 1; 0 for tokens.
    """

    name: str
    field: str
    heads: int
    head_bytes: int
    itemsize: int
    layers: tuple[int, ...]
    live: int = 0


@dataclass(frozen=True)
class Model:
    """A spec, and its rows in the order of the canonical form."""

    spec: Spec
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return self.spec.name


def content(row: str, layer: int, head: int, index: int, size: int) -> bytes:
    """The bytes of one head of one row: different for every row, layer, head and token."""
    return shake_128(f"{row} {layer} {head} {index}".encode()).digest(size)


_THREE = (0, 2, 5)
MODELS = (
    Model(
        Attention("full", _THREE, 4, 16, "bfloat16", shared=((7, 5),)),
        (Row("k", "k", 4, 32, 2, _THREE), Row("v", "v", 4, 32, 2, _THREE)),
    ),
    Model(
        Attention("swa", (1, 3), 4, 16, "bfloat16", window=8),
        (Row("k", "k", 4, 32, 2, (1, 3)), Row("v", "v", 4, 32, 2, (1, 3))),
    ),
    Model(
        Attention("fp8", (0, 1), 4, 64, "float8_e4m3fn", v_head_dim=32, scales="per_token_head"),
        (
            Row("k", "k", 4, 64, 1, (0, 1)),
            Row("v", "v", 4, 32, 1, (0, 1)),
            Row("k_scale", "k_scale", 4, 4, 4, (0, 1)),
            Row("v_scale", "v_scale", 4, 4, 4, (0, 1)),
        ),
    ),
    Model(
        Attention(
            "int8", (4,), 4, 6, "int8", scales="per_token_head", extra=(ExtraField("gate", (4, 3), "float16", heads=4),)
        ),
        (
            Row("k", "k", 4, 6, 1, (4,)),
            Row("v", "v", 4, 6, 1, (4,)),
            Row("k_scale", "k_scale", 4, 4, 4, (4,)),
            Row("v_scale", "v_scale", 4, 4, 4, (4,)),
            Row("gate", "gate", 4, 6, 2, (4,)),
        ),
    ),
    Model(
        Latent("mla", (0, 1, 4), 24, 8, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8", (0, 4)),)),
        (Row("latent", "latent", 1, 64, 2, (0, 1, 4)), Row("indexer", "indexer", 1, 132, 1, (0, 4))),
    ),
    Model(
        ConvRecurrent(
            "gdn",
            (2, 3),
            32,
            4,
            "bfloat16",
            sections=(8, 8, 16),
            section_heads=(4, 4, 8),
            verify_tokens=3,
            state=(8, 2, 3),
            extra=(ExtraField("norm", (5,), "float32", (3,)),),
        ),
        (
            Row("conv.0", "conv", 4, 4, 2, (2, 3), 3),
            Row("conv.1", "conv", 4, 4, 2, (2, 3), 3),
            Row("conv.2", "conv", 8, 4, 2, (2, 3), 3),
            Row("state", "state", 8, 24, 4, (2, 3), 1),
            Row("norm", "norm", 1, 20, 4, (3,), 1),
        ),
    ),
    Model(
        ConvRecurrent(
            "ssm",
            (0, 5),
            22,
            3,
            "float16",
            sections=(12, 5, 5),
            section_heads=(4, 1, 1),
            verify_tokens=2,
            state=(4, 2),
            state_dtype="bfloat16",
        ),  # one group of B and C
        (
            Row("conv.0", "conv", 4, 6, 2, (0, 5), 2),
            Row("conv.1", "conv", 1, 10, 2, (0, 5), 2),
            Row("conv.2", "conv", 1, 10, 2, (0, 5), 2),
            Row("state", "state", 4, 4, 2, (0, 5), 1),
        ),
    ),
    Model(
        ConvRecurrent(
            "nemo",
            (1, 2),
            32,
            4,
            "bfloat16",
            sections=(16, 8, 8),
            section_heads=(8, 2, 2),
            state=(8, 3, 2),
        ),
        (
            Row("conv.0", "conv", 8, 4, 2, (1, 2), 3),
            Row("conv.1", "conv", 2, 8, 2, (1, 2), 3),
            Row("conv.2", "conv", 2, 8, 2, (1, 2), 3),
            Row("state", "state", 8, 24, 4, (1, 2), 1),
        ),
    ),
)
BY_NAME = {model.spec.name: model for model in MODELS}


def packed_kv(spec: Spec, page_size: int) -> PoolLayout:
    """K and V of a head side by side: ``[page][layer][token][head][k | v]``, extra rows of each layer after them."""
    assert isinstance(spec, Attention)
    size = itemsize(spec.dtype)
    k, v, *rest = spec.fields()
    width = k.row_shape[1] + v.row_shape[1]
    pair = spec.kv_heads * width * size
    layer = -(-page_size * (pair + sum(one.row_bytes for one in rest)) // 4) * 4
    page = layer * len(spec.layers)
    fields, base = [], 0
    for one in (k, v):
        strides = (width * size, size)
        fields.append(
            FieldLayout(
                one.name, one.dtype, one.layers, one.row_shape, strides, (page_size,), (pair,), base, layer, page
            )
        )
        base += k.row_shape[1] * size
    base = pair * page_size
    for one in rest:
        unit = itemsize(one.dtype)
        rest_strides = (one.row_bytes // one.row_shape[0], unit)[: len(one.row_shape)]
        fields.append(
            FieldLayout(
                one.name,
                one.dtype,
                one.layers,
                one.row_shape,
                rest_strides,
                (page_size,),
                (one.row_bytes,),
                base,
                layer,
                page,
            )
        )
        base += one.row_bytes * page_size
    return PoolLayout(tuple(fields), ())


LAYOUTS: dict[str, Layout] = {
    "NHD": partial(page_major, forms=("page",)),
    "HND": partial(page_major, order="HND", forms=("page",)),
    "token-major": token_major,
    "packed": packed_kv,
    "NZ": partial(nz, forms=("page",)),
    "layer-major": partial(layer_major, order="HND"),
    "x-packed": x_packed,
    "x-packed, V across tokens": partial(x_packed, values="transposed"),
}
"""Layouts of tokens; each model has those that its rows fit into."""

CONV_LAYOUTS: dict[str, ConvStateLayout] = {
    "ring": ConvStateLayout(),
    "offset, channels first": ConvStateLayout("channels_first", 1, "offset"),
    "rollback, padded": ConvStateLayout("rows_first", 8, "rollback"),
    "ring, channels first, padded": ConvStateLayout("channels_first", 16, "ring"),
}
LAYOUTS |= {name: lambda spec, _, conv=conv: conv_window(spec, conv) for name, conv in CONV_LAYOUTS.items()}  # type: ignore[misc]


def layouts_of(model: Model, page_size: int) -> list[str]:
    """Names of the layouts that a model can have in pages of that size."""
    if model.spec.kind == "slots":
        return list(CONV_LAYOUTS)
    names = ["NHD", "HND", "token-major", "layer-major"]
    if isinstance(model.spec, Attention):
        names.append("packed")
    if all(row.head_bytes % 32 == 0 for row in model.rows):
        names.append("NZ")
        if isinstance(model.spec, Attention) and page_size % 16 == 0:
            names += ["x-packed", "x-packed, V across tokens"]
    return names
