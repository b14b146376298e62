"""Where every byte lies, found by walking memory in order with plain integer loops. Imports nothing from statehal.

A walk visits the elements of a page in the order in which they lie in memory and writes down where each one is. There
are no strides here: only the next free byte, and padding up to a multiple.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

Element = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One kind of row: ``layers`` is how many stored layers have it; rows of one ``group`` have the same layers."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    layers: int
    group: object

    def bytes(self) -> int:
        return count(self.shape) * self.itemsize


@dataclass
class Page:
    """Places of page 0: ``(field, layer index, slot, element)`` to byte, and the bytes of the whole page.

    ``steps`` is how far apart a field's neighbouring slots are, by definition of the layout.
    """

    places: dict[tuple[str, int, int, Element], int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    size: int = 0


def count(shape: Iterable[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def elements(shape: tuple[int, ...]) -> Iterator[Element]:
    return product(*(range(size) for size in shape))


def up(value: int, multiple: int) -> int:
    while value % multiple:
        value += 1
    return value


def common(*numbers: int) -> int:
    """The least common multiple, by trying."""
    largest = max(numbers)
    value = largest
    while any(value % number for number in numbers):
        value += largest
    return value


def groups(rows: list[Row]) -> list[list[Row]]:
    """Rows that have the same layers, in order of first appearance."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return list(found.values())


def walk_rows(row: Row, page_size: int, order: str) -> Iterator[tuple[int, Element]]:
    """Slots and elements of one layer of one field in memory order."""
    if order == "NHD" or len(row.shape) == 1:
        for slot in range(page_size):
            for element in elements(row.shape):
                yield slot, element
    else:
        for head in range(row.shape[0]):
            for slot in range(page_size):
                for rest in elements(row.shape[1:]):
                    yield slot, (head, *rest)


def walk_nz(row: Row, page_size: int) -> Iterator[tuple[int, Element]]:
    """Fractals of 32 bytes: heads, then pieces of a row, then slots, then the elements of a piece."""
    *heads, pieces, width = row.shape
    for head in elements(tuple(heads)):
        for piece in range(pieces):
            for slot in range(page_size):
                for d in range(width):
                    yield slot, (*head, piece, d)


def nz_row(row: Row) -> Row:
    """A row of ``[heads, dim]`` as ``[heads, dim / x, x]``, where ``x`` elements take 32 bytes."""
    x = 32 // row.itemsize
    *heads, dim = row.shape
    return Row(row.name, (*heads, dim // x, x), row.itemsize, row.layers, row.group)


def page_major(rows: list[Row], page_size: int, order: str = "NHD", align: int = 1, nz: bool = False) -> Page:
    """``[L0_K*ps | L0_V*ps | L1_K*ps | ..]``; every field starts, and every layer's stride is, at its alignment."""
    page = Page()
    at = 0
    for members in groups(rows):
        unit = common(align, *(row.itemsize for row in members))
        for layer in range(members[0].layers):
            at = up(at, unit)
            for row in members:
                at = up(at, common(align, row.itemsize))
                walk = walk_nz(row, page_size) if nz else walk_rows(row, page_size, order)
                for slot, element in walk:
                    page.places[row.name, layer, slot, element] = at
                    at += row.itemsize
    page.size = up(at, common(align, *(row.itemsize for row in rows)))
    for row in rows:
        if nz:
            page.steps[row.name] = 32
        elif order == "HND" and len(row.shape) > 1:
            page.steps[row.name] = count(row.shape[1:]) * row.itemsize
        else:
            page.steps[row.name] = row.bytes()
    return page


def token_major(rows: list[Row], page_size: int, align: int = 1) -> Page:
    """``[K0 | V0 | K1 | V1 | .. | pad]`` for each token in turn."""
    page = Page()
    at = 0
    entry = 0
    for slot in range(page_size):
        start = at
        for members in groups(rows):
            unit = common(align, *(row.itemsize for row in members))
            for layer in range(members[0].layers):
                at = start + up(at - start, unit)
                for row in members:
                    at = start + up(at - start, common(align, row.itemsize))
                    for element in elements(row.shape):
                        page.places[row.name, layer, slot, element] = at
                        at += row.itemsize
        at = start + up(at - start, common(align, *(row.itemsize for row in rows)))
        entry = at - start
    page.size = at
    page.steps = {row.name: entry for row in rows}
    return page


def slot_page(rows: list[Row], align: int = 1) -> Page:
    """A conv + recurrent slot: as page-major with one slot a page."""
    return page_major(rows, 1, "NHD", align)


@dataclass
class LayerMajor:
    """``(field, layer index, page, slot, element)`` to byte over all pages, and the bytes of everything."""

    places: dict[tuple[str, int, int, int, Element], int]
    steps: dict[str, int]
    size: int


def layer_major(rows: list[Row], page_size: int, num_pages: int, order: str = "NHD") -> LayerMajor:
    """Fields one after another; of each, layers one after another; of each, its pages."""
    places: dict[tuple[str, int, int, int, Element], int] = {}
    at = 0
    for row in rows:
        at = up(at, row.itemsize)
        for layer in range(row.layers):
            for page in range(num_pages):
                for slot, element in walk_rows(row, page_size, order):
                    places[row.name, layer, page, slot, element] = at
                    at += row.itemsize
    return LayerMajor(places, page_major(rows, page_size, order).steps, at)


def kernel_id(form: str, page: int, slot: int, page_size: int, page_stride: int, step: int, row: Row) -> int:
    """The kernel id of a token, by the formulas of the three address forms."""
    if form == "row":
        return page * (page_stride // step) + slot
    if form == "block":
        return page * (page_stride // (page_size * row.bytes())) * page_size + slot
    return page * page_size + slot


def rows_in_view(form: str, num_pages: int, page_size: int, page_stride: int, step: int, row: Row) -> int:
    """Length of the first axis of a view that ends on its last valid row or block."""
    if form == "row":
        return (num_pages - 1) * (page_stride // step) + page_size
    if form == "block":
        return (num_pages - 1) * (page_stride // (page_size * row.bytes())) + 1
    return num_pages
