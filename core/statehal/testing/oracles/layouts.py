"""Which bytes a field takes, as sets, and what a spec's rows are: from a layout's integers alone.

A set of bytes is an integer whose bit ``n`` says whether byte ``n`` is in it.
"""

from itertools import product
from math import prod
from typing import NamedTuple

from statehal.layout import FieldLayout
from statehal.spec import Attention, ConvRecurrent, Latent, Spec

ONE = {
    "float32": b"\x00\x00\x80\x3f",
    "bfloat16": b"\x80\x3f",
    "float16": b"\x00\x3c",
    "float8_e4m3fn": b"\x38",
    "float8_e4m3fnuz": b"\x40",
    "float8_e5m2": b"\x3c",
    "float8_e5m2fnuz": b"\x40",
    "int8": b"\x01",
    "uint8": b"\x01",
    "int32": b"\x01\x00\x00\x00",
    "int64": b"\x01\x00\x00\x00\x00\x00\x00\x00",
}
"""The bytes of the number 1 in every storage dtype, by the formats' definitions; their count is an element's size."""


class Rows(NamedTuple):
    """What a field has to hold: a dtype, the layers that use each stored row, elements a row, rows a page."""

    dtype: str
    layers: tuple[tuple[int, ...], ...]
    elements: int
    page_size: int


def rows_of(spec: Spec, page_size: int, channels: int = 0) -> dict[str, Rows]:
    """The fields that a layout of the spec has, by name.

    Args:
        channels: stored channels of a conv window, padding included.
    """

    def layers(owners: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple((owner, *(layer for layer, of in spec.shared if of == owner)) for owner in owners)

    every = layers(spec.layers)
    found: dict[str, Rows] = {}
    if isinstance(spec, Attention):
        width = spec.head_dim if spec.v_head_dim is None else spec.v_head_dim
        found["k"] = Rows(spec.dtype, every, spec.kv_heads * spec.head_dim, page_size)
        found["v"] = Rows(spec.dtype, every, spec.kv_heads * width, page_size)
        if spec.scales:
            found["k_scale"] = found["v_scale"] = Rows("float32", every, spec.kv_heads, page_size)
    elif isinstance(spec, Latent):
        found["latent"] = Rows(spec.dtype, every, spec.kv_lora_rank + spec.qk_rope_head_dim, page_size)
    elif isinstance(spec, ConvRecurrent):
        rows = spec.width - 1 + spec.verify_tokens - 1
        found["conv"] = Rows(spec.dtype, every, rows * channels, page_size)
        if spec.state:
            found["state"] = Rows(spec.state_dtype, every, prod(spec.state), page_size)
        found["cursor"] = Rows("int32", (sum(every, ()),), 1, page_size)
    for extra in spec.extra:
        owners = layers(spec.layers if extra.layers is None else extra.layers)
        found[extra.name] = Rows(extra.dtype, owners, prod(extra.row_shape), page_size)
    return found


def held(field: FieldLayout) -> Rows:
    """What a field of a layout holds."""
    return Rows(field.dtype, field.layers, prod(field.row_shape), prod(field.token_shape))


def layer_bytes(field: FieldLayout) -> int:
    """The bytes of one layer in one page, the first element at byte 0."""
    element = (1 << len(ONE[field.dtype])) - 1
    found = 0
    for place in product(*map(range, field.row_shape)):
        found |= element << sum(at * stride for at, stride in zip(place, field.row_strides, strict=True))
    for size, stride in zip(field.token_shape, field.token_strides, strict=True):
        found = _repeated(found, size, stride)
    return found


def field_bytes(field: FieldLayout, page: int = 0) -> int:
    """The bytes of all layers in one page."""
    start = field.base + page * field.page_stride
    return _repeated(layer_bytes(field), len(field.layers), field.layer_stride) << start


def payload(field: FieldLayout) -> int:
    """How many bytes all layers have in one page if no two elements share any."""
    return len(field.layers) * prod(field.token_shape) * prod(field.row_shape) * len(ONE[field.dtype])


def form_objection(field: FieldLayout, kind: str, *, planned: bool) -> str:
    """Why a field does not have an address form; empty where it has.

    Args:
        kind: ``"row"``, ``"block"`` or ``"page"``.
        planned: whether pages have their final distance; a tight page may still be widened.
    """
    step = field.token_strides[0]
    if kind == "row":
        if len(field.token_shape) != 1:
            return f"its place in a page has {len(field.token_shape)} digits {field.token_shape}, so no step leads on"
        if planned and field.page_stride % step:
            return f"pages are {field.page_stride} bytes apart, not whole steps of {step}"
    if kind == "block":
        taken, size = layer_bytes(field), prod(field.token_shape) * prod(field.row_shape) * len(ONE[field.dtype])
        span = taken.bit_length()
        while len(field.token_shape) == 1 and span % step:  # a block ends where the next row would begin
            span += 1
        if (taken.bit_count(), span) != (size, size):
            return f"its rows in a page take {taken.bit_count()} bytes but span {span}"
        if planned and field.page_stride % size:
            return f"pages are {field.page_stride} bytes apart, not whole blocks of {size}"
    return ""


def numbered(field: FieldLayout, kind: str, page: int, place: int) -> int:
    """The kernel id of a token in a form that the field has."""
    size = prod(field.token_shape)
    if kind == "row":
        return page * (field.page_stride // field.token_strides[0]) + place
    if kind == "block":
        return page * (field.page_stride // (size * prod(field.row_shape) * len(ONE[field.dtype]))) * size + place
    return page * size + place


def _repeated(bits: int, count: int, step: int) -> int:
    found = 0
    for n in range(count):
        found |= bits << (n * step)
    return found
