"""Where every byte of a page lies, found by walking memory in order: the next free byte, and padding.

A nest is the order in which the elements of one layer of one field lie in a page: its axes, slowest first. An axis is a
digit of a token's place (``"t0"``, ``"t1"``) or an axis of the row (``0``, ``1``, ..).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from statehal.testing.corpus.arithmetic import common, product_of, up
from statehal.testing.corpus.rows import Groups, Row

Axis = tuple[str | int, int]
Element = tuple[int, ...]


@dataclass(frozen=True)
class Nest:
    """A row in the shape that its layout gives it, and the order of a page."""

    row: Row
    axes: tuple[Axis, ...]

    @property
    def token_shape(self) -> list[int]:
        """Sizes of the digits of a place, most significant first."""
        return [size for label, size in self.axes if isinstance(label, str)]

    def strides(self, tokens: bool) -> list[int]:
        """Bytes between neighbours on each digit of a place, or on each axis of a row."""
        found: dict[str | int, int] = {}
        for at, (label, _) in enumerate(self.axes):
            found[label] = product_of(size for _, size in self.axes[at + 1 :]) * self.row.itemsize
        labels = sorted((label for label in found if isinstance(label, str) == tokens), key=str)
        return [found[label] for label in labels]

    def steps(self) -> Iterator[tuple[int, Element, int]]:
        """Slot, element and bytes of each piece in memory order; an element without its last axis is a whole run."""
        runs = self.axes[-1][0] == len(self.row.shape) - 1
        walked = self.axes[:-1] if runs else self.axes
        length = (self.axes[-1][1] if runs else 1) * self.row.itemsize
        rank = len(self.row.shape) - runs
        for digits in product(*(range(size) for _, size in walked)):
            slot, element = 0, [0] * rank
            for (label, size), digit in zip(walked, digits, strict=True):
                if isinstance(label, int):
                    element[label] = digit
                else:
                    slot = slot * size + digit
            yield slot, tuple(element), length


def nest(row: Row, page_size: int, constructor: str, order: str | None) -> Nest:
    """The order in which a constructor stores a row in a page."""
    if constructor == "nz" or (constructor == "x_packed" and row.name == "k"):
        x = (32 if constructor == "nz" else 16) // row.itemsize
        row = Row(row.name, (*row.shape[:-1], row.shape[-1] // x, x), row.dtype, row.layers)
        axes = list(enumerate(row.shape))
        return Nest(row, (*axes[:-1], ("t0", page_size), axes[-1]))
    axes = list(enumerate(row.shape))
    if constructor == "x_packed":
        x = 16 // row.itemsize
        return Nest(row, (axes[0], ("t0", page_size // x), axes[1], ("t1", x)))
    if order == "HND" and len(axes) > 1:
        return Nest(row, (axes[0], ("t0", page_size), *axes[1:]))
    return Nest(row, (("t0", page_size), *axes))


@dataclass
class Page:
    """Page 0: bytes of the pieces of every field, and what repeats.

    Attributes:
        places: by field, stored layer, slot and element.
        base, layer_stride: by field: its first byte, and how far its layers are apart.
        size: bytes of the page.
        entry: of token-major pages, the bytes of a token.
    """

    places: dict[tuple[str, int, int, Element], int] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)
    layer_stride: dict[str, int] = field(default_factory=dict)
    size: int = 0
    entry: int = 0

    def byte(self, row: Row, layer: int, slot: int, element: Element) -> int:
        """Where an element lies."""
        whole = self.places.get((row.name, layer, slot, element))
        if whole is not None:
            return whole
        return self.places[row.name, layer, slot, element[:-1]] + element[-1] * row.itemsize


def members_of(nests: list[Nest]) -> list[list[Nest]]:
    """Fields that have the same layers, in order of first appearance: these interleave layer by layer."""
    found: dict[Groups, list[Nest]] = {}
    for one in nests:
        found.setdefault(one.row.layers, []).append(one)
    return list(found.values())


def walk_page(nests: list[Nest], align: int) -> Page:
    """``[L0_K*ps | L0_V*ps | L1_K*ps | ..]``: fields start aligned, and so does every layer."""
    page, at = Page(), 0
    for members in members_of(nests):
        unit = common(align, *(one.row.itemsize for one in members))
        for layer in range(len(members[0].row.layers)):
            start = at = up(at, unit)
            for one in members:
                at = up(at, common(align, one.row.itemsize))
                if layer == 0:
                    page.base[one.row.name] = at
                for slot, element, length in one.steps():
                    page.places[one.row.name, layer, slot, element] = at
                    at += length
            for one in members:
                page.layer_stride.setdefault(one.row.name, up(at, unit) - start)
    page.size = up(at, common(align, *(one.row.itemsize for one in nests)))
    return page


def walk_tokens(nests: list[Nest], page_size: int, align: int) -> Page:
    """``[K0 | V0 | K1 | V1 | .. | pad]`` for each token in turn; the nests are those of pages of one token."""
    token, page = walk_page(nests, align), Page()
    page.base, page.layer_stride, page.entry = token.base, token.layer_stride, token.size
    for slot in range(page_size):
        for (name, layer, _, element), byte in token.places.items():
            page.places[name, layer, slot, element] = page.size + byte
        page.size += page.entry
    return page


def walk_layers(nests: list[Nest], num_pages: int) -> Page:
    """Fields one after another; of each, its layers; of each, all pages. ``size`` is that of all pages."""
    page = Page()
    for one in nests:
        page.size = up(page.size, one.row.itemsize)
        page.base[one.row.name] = page.size
        for layer in range(len(one.row.layers)):
            at = page.size
            for slot, element, length in one.steps():
                page.places[one.row.name, layer, slot, element] = at
                at += length
            page.layer_stride[one.row.name] = num_pages * (at - page.size)
            page.size += num_pages * (at - page.size)
    return page
