"""Where the rows of a section lie: in a pool of some layout, and in canonical order."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from statehal.errors import LayoutError
from statehal.layout import FieldLayout, PoolLayout
from statehal.portability.axes import Axes, merge, place, split, window
from statehal.portability.parts import Piece
from statehal.portability.sections import Rows, Section, sections
from statehal.spec import Spec


@dataclass(frozen=True)
class Units:
    """How the units of a field (runs of neighbouring tokens of a page, or window rows) are found by id.

    Unit ``i`` of page ``p`` lies ``p * page_stride + places[i]`` bytes past the first; ids count steps of ``step``
    bytes.

    Attributes:
        rows: what is counted: tokens, or the rows of a window, a state or a ring.
    """

    rows: Rows
    page_stride: int
    places: tuple[int, ...]

    @cached_property
    def step(self) -> int:
        """Bytes that all distances between units are multiples of."""
        return gcd(self.page_stride, *self.places)

    @property
    def first(self) -> int:
        """The smallest id of page 1; those of page 0, the sink, lie below it."""
        return self.page_stride // self.step

    def count(self, num_pages: int) -> int:
        """Ids of a view that ends with the last unit of the last page."""
        return ((num_pages - 1) * self.page_stride + max(self.places)) // self.step + 1


@dataclass(frozen=True)
class Placed:
    """Where one unit of some heads lies: ``offset`` bytes past unit 0, in digits of rows, heads and elements."""

    offset: int
    rows: Axes
    heads: Axes
    dims: Axes


class PoolPlacement:
    """The rows of one rank's sub-pool.

    Attributes:
        layout: where the rank keeps them.
        first_heads: by section, the model's head that the rank keeps first.
    """

    def __init__(self, spec: Spec, layout: PoolLayout, first_heads: Mapping[str, int]) -> None:
        self.layout = layout
        self.first_heads = first_heads
        self._sections = {section.name: section for section in sections(spec)}

    def unit(self, section: Section, most: int) -> int:
        """Rows of a unit: as many as both ``most`` and the digits of a page allow."""
        field = self.layout.field(section.field)
        if section.rows != "token":
            return 1
        if most % field.page_size == 0:
            return field.page_size
        return gcd(most, field.token_shape[-1])

    def units(self, section: Section, unit: int) -> Units:
        """How units of that many rows are found."""
        field = self.layout.field(section.field)
        axes, count = self._row_axis(field, section), self._rows(field, section)
        return Units(section.rows, field.page_stride, tuple(place(axes, index) for index in range(0, count, unit)))

    def placed(self, piece: Piece, unit: int) -> Placed:
        """Where unit 0 of a piece lies, from the start of the buffer.

        Raises:
            LayoutError: the heads of the piece are no run of the layout's digits, or the rank does not keep them.
        """
        section, field = piece.section, self.layout.field(piece.section.field)
        own = self._sections[section.name]
        first = piece.heads[0] - self.first_heads[section.name]
        count = piece.heads[1] - piece.heads[0]
        what = f"a row of field {field.name!r}"
        if not 0 <= first <= own.heads - count:
            raise LayoutError(f"{what} has {own.heads} heads: those asked for begin at {first} and are {count}")
        row = merge(self._row(field, section))
        heads: Axes
        dims: Axes
        if len(row) == 1:  # a section of channels may start anywhere in it
            ((_, stride),) = row
            offset, heads = (own.start + first * own.dim) * stride, ((count, own.dim * stride),)
            dims = ((own.dim, stride),)
        else:
            heads, dims = split(row, own.dim, what)
            offset, heads = window(heads, own.start // own.dim + first, count, what)
        rows = split(self._row_axis(field, section), unit, f"a page of field {field.name!r}")[1]
        offset += field.base + field.layer_index(piece.layer) * field.layer_stride
        return Placed(offset, rows, heads, dims)

    def _row_axis(self, field: FieldLayout, section: Section) -> Axes:
        """Digits of what is counted within a page: tokens, or the rows of a window or a ring."""
        if section.rows == "token":
            return tuple(zip(field.token_shape, field.token_strides, strict=True))
        if section.rows == "state":
            return ((1, 0),)
        axis = self._window_axis(section)
        return ((field.row_shape[axis], field.row_strides[axis]),)

    def _rows(self, field: FieldLayout, section: Section) -> int:
        return prod(size for size, _ in self._row_axis(field, section))

    def _row(self, field: FieldLayout, section: Section) -> Axes:
        """Digits of the elements of one row, without the window's or ring's own axis."""
        axes = list(zip(field.row_shape, field.row_strides, strict=True))
        if section.rows in ("window", "replay"):
            del axes[self._window_axis(section)]
        return tuple(axes)

    def _window_axis(self, section: Section) -> int:
        conv = self.layout.conv
        return int(section.rows == "window" and conv is not None and conv.window_order == "channels_first")


def canonical(piece: Piece, offset: int, unit: int) -> tuple[Placed, Units]:
    """Where the units of a piece lie in a buffer in which it begins at ``offset``: ``[head][row][dim]``, in order."""
    count, row = piece.heads[1] - piece.heads[0], piece.section.row_bytes
    dims = ((piece.section.dim, row // piece.section.dim),)
    return (
        Placed(offset, ((unit, row),), ((count, piece.rows * row),), dims),
        Units(piece.section.rows, unit * row, (0,)),
    )
