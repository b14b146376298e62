"""A layout vector: where a spec's rows lie in a layout, and how ids name them."""

from dataclasses import replace
from typing import Any

from statehal.testing.corpus.arithmetic import common, up
from statehal.testing.corpus.layout_forms import KINDS, Placed, granularity
from statehal.testing.corpus.rows import Json, Row, rows_of
from statehal.testing.corpus.walk import Element, Nest, Page, nest, walk_layers, walk_page, walk_tokens

REGION = 4096
"""Bytes: a planner lets a sub-pool's pages begin at a multiple of this and of the layout's ``align``."""


def vector(name: str, spec: Json, layout: Json, placement: Json) -> Json:
    """One vector.

    Args:
        placement: ``pages``: how many; ``per_slab``: pages of a slab (0: no slabs); ``widen``: by how many granules,
            past what the forms in use need, pages are widened (``None``: not even by that); ``region``: where pages
            begin.
    """
    constructor, page_size, align = layout["constructor"], layout["page_size"], layout.get("align", 1)
    rows, num_pages = rows_of(spec, layout), placement["pages"]
    nested = 1 if constructor == "token_major" else page_size
    nests = [nest(row, nested, constructor, layout.get("order")) for row in rows]
    if constructor == "layer_major":
        page = walk_layers(nests, num_pages)
    elif constructor == "token_major":
        page = walk_tokens(nests, page_size, align)
    else:
        page = walk_page(nests, align)
    fields = [placed(one, page, page_size) for one in nests]
    in_use = {row.name: layout["forms"] for row in rows if constructor != "conv_window" or row.name == "conv"}
    made: Json = {"offset": common(REGION, align) * placement["region"], "num_pages": num_pages}
    if constructor == "layer_major":
        page_bytes = sum(len(field.row.layers) * field.page_stride for field in fields)
        total = page.size
    else:
        unit = granularity(fields, in_use, align)
        widen = placement["widen"]
        page_bytes = page.size if widen is None else up(page.size, unit) + widen * unit
        fields = [replace(field, page_stride=page_bytes) for field in fields]
        total = num_pages * page_bytes
        made["page_stride"] = page_bytes
        if placement["per_slab"]:
            made |= {"pages_per_slab": placement["per_slab"], "slab_bytes": placement["per_slab"] * page_bytes}
    tokens, pages = samples(page_size, num_pages)
    return {
        "name": name,
        "spec": spec,
        "layout": layout,
        "placement": made,
        "page_bytes": page_bytes,
        "total_bytes": made["offset"] + total,
        "tokens": tokens,
        "pages": pages,
        "fields": [described(one, field, page, made, tokens, pages) for one, field in zip(nests, fields, strict=True)],
    }


def placed(one: Nest, page: Page, page_size: int) -> Placed:
    """A field as it lies in page 0; of token-major pages, tokens are an entry apart."""
    row, digits = one.row, one.strides(tokens=True)
    step = page.entry or (digits[0] if len(digits) == 1 else None)
    last = tuple(size - 1 for size in row.shape)
    first = page.byte(row, 0, 0, (0,) * len(row.shape))
    footprint = page.byte(row, 0, page_size - 1, last) + row.itemsize - first
    stride = page_size * row.bytes  # of layer-major pages; others are given theirs
    return Placed(row, page_size, stride, step, footprint)


def samples(page_size: int, num_pages: int) -> tuple[list[int], list[int]]:
    """Tokens and pages: the first ones, the first of page 1, one within a page, the last."""
    last = num_pages - 1
    tokens = [0, page_size - 1, page_size, last * page_size + page_size // 2, num_pages * page_size - 1]
    return sorted(set(tokens)), sorted({0, 1, last // 2, last})


def described(one: Nest, field: Placed, page: Page, made: Json, tokens: list[int], pages: list[int]) -> Json:
    """A field's integers, forms, ids and the bytes of sample elements."""
    row, offset = field.row, made["offset"]
    return {
        "name": row.name,
        "dtype": row.dtype,
        "itemsize": row.itemsize,
        "layers": row.layers,
        "base": offset + page.base[row.name],
        "layer_stride": page.layer_stride[row.name],
        "page_stride": field.page_stride,
        "token_shape": [field.page_size] if page.entry else one.token_shape,
        "token_strides": [page.entry] if page.entry else one.strides(tokens=True),
        "row_shape": row.shape,
        "row_strides": one.strides(tokens=False),
        "forms": {kind: field.form(kind, made["num_pages"], tokens, pages) for kind in KINDS},
        "addresses": [
            {
                "layer": row.layers[layer][which],
                "token": token,
                "element": element,
                "byte": offset
                + token // field.page_size * field.page_stride
                + page.byte(row, layer, token % field.page_size, element),
            }
            for layer, which, token, element in elements(row, field.page_size, made["num_pages"])
        ],
    }


def elements(row: Row, page_size: int, num_pages: int) -> list[tuple[int, int, int, Element]]:
    """Samples: stored layer, which of the model layers that use it, token, element."""
    first: Element = (0,) * len(row.shape)
    middle: Element = tuple(size // 2 for size in row.shape)
    last: Element = tuple(size - 1 for size in row.shape)
    far, end, half = len(row.layers) - 1, num_pages * page_size - 1, len(row.layers) // 2
    asked: list[tuple[int, int, int, Any]] = [
        (0, 0, 0, first),
        (far, -1, end, last),
        (half, 0, page_size, middle),
        (0, -1, end - page_size // 2, last),
        (far, 0, page_size - 1, first),
        (half, -1, end, middle),
    ]
    return list(dict.fromkeys(asked))
