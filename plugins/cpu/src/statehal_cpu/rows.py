"""Rows of a field as the extension addresses them, from a layout's integers alone."""

from collections.abc import Sequence
from itertools import product
from math import gcd, prod
from types import ModuleType
from typing import TYPE_CHECKING

from torch import Tensor

from statehal.layout import FieldLayout, FormKind
from statehal.pool import SubPool
from statehal.spec import FieldSpec

if TYPE_CHECKING:
    from statehal_cpu._native import Layer, Rows


class FieldRows:
    """The rows of one field of a sub-pool, in the first address form that its layout uses.

    Attributes:
        layers: by model layer id; layers that share rows have one.
        stored: those of ``layers``, each once.
    """

    def __init__(self, native: ModuleType, sub: SubPool, spec: FieldSpec, scales: "FieldRows | None" = None) -> None:
        layout = sub.layout.field(spec.name)
        kind = sub.layout.kinds(spec.name)[0]
        form = sub.forms.index(sub.layout.form(spec.name, kind))
        self.layers: dict[int, Layer] = {}
        self.stored: list[Layer] = []
        rows: Rows | None = None
        for group in layout.layers:
            view = sub.view(spec.name, group[0], kind)
            rows = rows or _rows(native, sub, layout, view, kind, spec.row_shape)
            self.stored.append(native.Layer(rows, view, form, None if scales is None else scales.layers[group[0]]))
            self.layers |= dict.fromkeys(group, self.stored[-1])


def runs(shape: Sequence[int], strides: Sequence[int], size: int, width: int) -> tuple[int, list[int]]:
    """A row in pieces of equal length, as bytes of one, and the distances of all from the start of the row.

    Args:
        shape, strides: of the row; strides in bytes.
        size: bytes of an element.
        width: elements of a head; a piece is a part of a head, or the whole row.

    Examples:
        >>> runs((8, 128), (256, 2), 2, 128)
        (2048, [0])
        >>> runs((2, 2, 4), (512, 64, 2), 2, 8)
        (8, [0, 64, 512, 576])
        >>> runs((4, 6), (24, 4), 2, 6)[0]
        2
    """
    together = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != together * size:
            break
        together *= length
    count = prod(shape)
    if together < count:
        together = gcd(together, width)
    offsets = [0]
    if together < count:
        elements = [sum(n * stride for n, stride in zip(index, strides, strict=True)) for index in _indices(shape)]
        offsets = elements[::together]
    return together * size, offsets


def _indices(shape: Sequence[int]) -> "product[tuple[int, ...]]":
    return product(*(range(length) for length in shape))


def _rows(
    native: ModuleType, sub: SubPool, layout: FieldLayout, view: Tensor, kind: FormKind, shape: tuple[int, ...]
) -> "Rows":
    run, offsets = runs(layout.row_shape, layout.row_strides, layout.itemsize, prod(shape[1:]))
    places = [0]
    if kind != "row":
        digits = _indices(layout.token_shape)
        places = [sum(n * by for n, by in zip(place, layout.token_strides, strict=True)) for place in digits]
    step, count = view.stride(0) * layout.itemsize, view.shape[0] * len(places)
    made: Rows = native.Rows(sub.page_size, count, step, places, run, offsets, shape[0], layout.itemsize)
    return made
