"""Where bytes lie, from a layout's integers, and what differs between two images of a pool."""

import struct

from statehal.layout import FieldLayout
from statehal.pool import StatePool

FORMATS = {"float32": "<f", "float16": "<e", "int32": "<i", "int64": "<q", "int8": "<b", "uint8": "<B"}
"""``struct`` formats of the dtypes that it knows."""


def address(field: FieldLayout, layer: int, page: int, place: int, element: tuple[int, ...]) -> int:
    """The byte of an element: the affine map of the contract, by its definition."""
    index = next(n for n, group in enumerate(field.layers) if layer in group)
    result = field.base + index * field.layer_stride + page * field.page_stride
    for size, stride in reversed(list(zip(field.token_shape, field.token_strides, strict=True))):
        result += (place % size) * stride
        place //= size
    for position, stride in zip(element, field.row_strides, strict=True):
        result += position * stride
    return result


def encoded(value: float, dtype: str) -> bytes:
    """The bytes of a number that the dtype holds exactly; fp8 is in ``statehal.testing.oracles.eight_bits``."""
    if dtype == "bfloat16":
        return struct.pack("<f", value)[2:]
    return struct.pack(FORMATS[dtype], value if dtype.startswith("float") else int(value))


def first_difference(pool: StatePool, wanted: bytes | bytearray, found: bytes | bytearray) -> str:
    """Which byte differs first, and whose it is; empty where none does."""
    if wanted == found:
        return ""
    at = next(n for n, (one, two) in enumerate(zip(wanted, found, strict=True)) if one != two)
    count = sum(one != two for one, two in zip(wanted, found, strict=True))
    return (
        f"{count} bytes differ, first byte {at} ({owner(pool, at)}): expected {wanted[at]:#04x}, found {found[at]:#04x}"
    )


def owner(pool: StatePool, at: int) -> str:
    """The sub-pool, field, layer, page and place that a byte of the buffer may belong to, by search."""
    found = []
    for name, sub in pool.subpools.items():
        for field in sub.layout.fields:
            for group, start, length in _rows(field):
                page, rest = divmod(at - field.base - start, field.page_stride)
                if 0 <= page < sub.layout.num_pages and rest < length:
                    found.append(f"{name!r} field {field.name!r} layer {group} page {page} byte {rest} of its layer")
    return " or ".join(found) or "padding"


def _rows(field: FieldLayout) -> list[tuple[int, int, int]]:
    """Of each stored layer: its first model layer id, its start in page 0, and how many bytes it spans."""
    extent = field.itemsize
    axes = zip(field.row_shape + field.token_shape, field.row_strides + field.token_strides, strict=True)
    for size, stride in axes:
        extent += (size - 1) * stride
    return [(group[0], n * field.layer_stride, extent) for n, group in enumerate(field.layers)]
