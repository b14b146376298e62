"""The bytes of a pool as they should be after a write: rows put by a layout's integers."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from statehal.layout import FieldLayout
from statehal.testing.oracles.bytes import address


def raw(tensor: Tensor) -> bytes:
    """A tensor's bytes, elements in the order of its axes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist())


def runs(field: FieldLayout, layer: int, page: int, place: int) -> Iterator[tuple[int, int, int]]:
    """The pieces of one row: where each lies in the pool, where it begins in the row's own bytes, and how long it is.

    A row's elements are in the order of its axes, the last one fastest; neighbours on the last axis are one piece where
    they lie side by side.
    """
    *outer, last = field.row_shape
    together = last if field.row_strides[-1] == field.itemsize else 1
    at = 0
    for index in product(*(range(size) for size in outer)):
        for first in range(0, last, together):
            yield address(field, layer, page, place, (*index, first)), at, together * field.itemsize
            at += together * field.itemsize


def put(image: bytearray, field: FieldLayout, layer: int, where: tuple[int, int], row: bytes) -> None:
    """Store a row at ``where``, a physical page and a place in it."""
    for at, start, length in runs(field, layer, *where):
        image[at : at + length] = row[start : start + length]


def get(image: bytes | bytearray, field: FieldLayout, layer: int, where: tuple[int, int]) -> bytes:
    """The bytes of a row."""
    return b"".join(bytes(image[at : at + length]) for at, _, length in runs(field, layer, *where))


def clear_sink(image: Tensor, fields: tuple[FieldLayout, ...]) -> None:
    """Zero page 0 of some fields in uint8 ``[total_bytes]``."""
    for field in fields:
        shape = (len(field.layers), *field.token_shape, *field.row_shape, field.itemsize)
        strides = (field.layer_stride, *field.token_strides, *field.row_strides, 1)
        image.as_strided(shape, strides, field.base).zero_()
