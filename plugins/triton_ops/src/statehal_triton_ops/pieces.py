"""A sub-pool as the table of pieces that ``kernels.copies.copy_rows`` reads: from a layout's integers alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from statehal.errors import LayoutError
from statehal.layout import AddressForm, FieldLayout, FormKind, PoolLayout
from statehal_triton_ops.axes import merged, widest
from statehal_triton_ops.kernels.copies import Piece


class Place(NamedTuple):
    """Where the row of an id lies, in bytes, and how many rows ids can name; see ``kernels.places.Field``."""

    s_id: int
    s_high: int
    s_low: int
    high: int
    low: int
    rows: int

    @property
    def digits(self) -> int:
        """How many digits a place has."""
        return 2 if self.high > 1 else 1 if self.low > 1 else 0


@dataclass(frozen=True)
class PieceTable:
    """Every field and layer of a sub-pool.

    Attributes:
        pieces: sizes and strides in units of ``wide`` or ``narrow`` bytes.
        wide, narrow: bytes of a unit; ``narrow`` is 0 where all are wide.
        long: whether an id may pass 31 bits.
        digits, axes: the most that one of them has.
        longest: units of the longest row.
        token_bytes: bytes of all rows of one token.
    """

    pieces: tuple[Piece, ...]
    wide: int
    narrow: int
    long: bool
    digits: int
    axes: int
    longest: int
    token_bytes: int


def place_of(field: FieldLayout, form: AddressForm, num_pages: int) -> Place:
    """How ids of a form lead to rows.

    Raises:
        LayoutError: a place has more than two digits.
    """
    pages = (num_pages - 1) * form.ratio
    if form.kind == "row":
        return Place(field.token_strides[0], 0, 0, 1, 1, pages + field.page_size)
    step, count = field.page_stride // form.ratio, (pages + 1) * field.page_size
    axes = merged(field.token_shape, field.token_strides)
    if len(axes) > 2:
        raise LayoutError(f"field {field.name!r}: its place has {len(axes)} digits: kernels handle at most 2")
    (high, (s_high,)), (low, (s_low,)) = [(1, (0,))] * (2 - len(axes)) + [(one.size, one.strides) for one in axes]
    if high == 1 and step == low * s_low:  # tokens of neighbouring pages follow each other
        return Place(s_low, 0, 0, 1, 1, count)
    return Place(step, s_high, s_low, high, low, count)


def piece_table(
    layout: PoolLayout, forms: tuple[AddressForm, ...], kinds: dict[str, FormKind], address: int
) -> PieceTable:
    """The table of a layout over a buffer.

    Args:
        forms: those of the tensors of ids, in their order.
        kinds: the form of each field.
        address: of the buffer.
    """
    found: list[tuple[int, Piece]] = []
    digits = axes = 0
    for field in layout.fields:
        form = layout.form(field.name, kinds[field.name])
        place = place_of(field, form, layout.num_pages)
        digits = max(digits, place.digits)
        for start, row in _rows(field):
            unit = widest(address, start, place.s_id, place.s_high, place.s_low, row.s_outer, row.s_middle, row.run)
            piece = Piece(
                forms.index(form), 0, start, *place[:5], row.s_outer, row.s_middle, row.middle, row.run, row.size, 0,
                layout.page_size, place.rows,
            )  # fmt: skip
            found.append((unit, piece))
            axes = max(axes, row.axes)
    wide = max(unit for unit, _ in found)
    narrow = min((unit for unit, _ in found if unit < wide), default=0)
    pieces, stash = [], 0
    for unit, piece in sorted(found, key=lambda one: one[0] < wide):  # wide ones first: their stash is aligned
        pieces.append(_in_units(piece, stash, wide if unit == wide else narrow, unit < wide))
        stash += piece.size
    long, longest = max(piece.count for piece in pieces) > 2**31, max(piece.size for piece in pieces)
    return PieceTable(tuple(pieces), wide, narrow, long, digits, axes, longest, stash)


class _Row(NamedTuple):
    """A row ``[outer, middle, run]`` in bytes."""

    outer: int
    middle: int
    run: int
    s_outer: int
    s_middle: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.outer * self.middle * self.run

    @property
    def axes(self) -> int:
        """How many axes it has besides its runs."""
        return 2 if self.outer > 1 else 1 if self.middle > 1 else 0


def _rows(field: FieldLayout) -> Iterator[tuple[int, _Row]]:
    """Where each layer's rows begin in page 0, and what they are; a row of more axes comes in several."""
    outer = merged(field.row_shape, field.row_strides)
    run = field.itemsize
    if outer and outer[-1].strides == (run,):
        run *= outer.pop().size
    rest, outer = outer[:-2], outer[-2:]
    (n_outer, s_outer), (n_middle, s_middle) = [(1, 0)] * (2 - len(outer)) + [
        (one.size, one.strides[0]) for one in outer
    ]
    row = _Row(n_outer, n_middle, run, s_outer, s_middle)
    steps = [range(0, one.size * one.strides[0], one.strides[0]) for one in rest]
    for layer in range(len(field.layers)):
        for offsets in product(*steps):
            yield field.base + layer * field.layer_stride + sum(offsets), row


def _in_units(piece: Piece, stash: int, unit: int, narrow: bool) -> Piece:
    """A piece whose sizes and strides are in bytes, in units."""
    sizes = ("start", "s_id", "s_high", "s_low", "s_outer", "s_middle", "run", "size")
    return piece._replace(
        narrow=int(narrow), stash=stash // unit, **{name: getattr(piece, name) // unit for name in sizes}
    )
