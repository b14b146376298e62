"""The contiguous pieces of a page, and which of them there is room to draw."""

from collections.abc import Sequence
from dataclasses import dataclass

from statehal.layout import FieldLayout, PoolLayout


@dataclass(frozen=True)
class Piece:
    """Bytes ``start`` to ``end`` of a page; rows of one layer of one field, or a hole where ``field`` is empty."""

    field: str
    layers: tuple[int, ...]
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Length."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """The layers in words."""
        if len(self.layers) > 2:
            return f"layer {self.layers[0]} and {len(self.layers) - 1} more"
        return f"layer{'s' if len(self.layers) > 1 else ''} {', '.join(map(str, self.layers))}"


@dataclass(frozen=True)
class Excerpt:
    """What is drawn of a run of pieces: all of it, or its two ends."""

    head: tuple[Piece, ...]
    elided: tuple[Piece, ...]
    tail: tuple[Piece, ...]

    @property
    def gap(self) -> int:
        """Bytes that are not drawn."""
        return sum(piece.bytes for piece in self.elided)

    @property
    def drawn_bytes(self) -> int:
        """Bytes that are drawn to scale."""
        return sum(piece.bytes for piece in self.head + self.tail)


def entry_bytes(layout: PoolLayout) -> int | None:
    """Bytes of a token's entry, where a page is one entry after another; else ``None``."""
    steps = {field.token_stride for field in layout.fields}
    step = steps.pop()
    rows = sum(len(field.layers) for field in layout.fields)
    if layout.order != "page" or steps or step is None or layout.page_size == 1 or rows == 1:
        return None
    # an entry holds a whole token: every layer of every field lies within the first step
    ends = [
        field.base - layout.origin + (len(field.layers) - 1) * field.layer_stride + _row_extent(field)
        for field in layout.fields
    ]
    return step if max(ends) <= step else None


def _row_extent(field: FieldLayout) -> int:
    return field.page_extent - (field.page_size - 1) * (field.token_stride or 0)


def page_pieces(layout: PoolLayout) -> list[Piece]:
    """Page 0 as pieces and holes in order of address; the last hole is the page's padding."""
    return _with_holes(
        [
            Piece(field.name, field.layers[index], start - layout.origin, start - layout.origin + length)
            for field in layout.fields
            for index, start, length in field.runs()
        ],
        layout.page_bytes,
    )


def entry_pieces(layout: PoolLayout, entry: int) -> list[Piece]:
    """The entry of the first token of page 0 as pieces and holes."""
    found = []
    for field in layout.fields:
        for index, group in enumerate(field.layers):
            start = field.base - layout.origin + index * field.layer_stride
            found.append(Piece(field.name, group, start, start + field.row_bytes))
    return _with_holes(found, entry)


def _with_holes(pieces: Sequence[Piece], total: int) -> list[Piece]:
    """Neighbouring pieces of one row joined, holes between them named, up to ``total`` bytes."""
    found: list[Piece] = []
    end = 0
    for piece in [*sorted(pieces, key=lambda piece: piece.start), Piece("", (), total, total)]:
        if piece.start > end:
            found.append(Piece("", (), end, piece.start))
        last = found[-1] if found else None
        if last and last.end == piece.start and (last.field, last.layers) == (piece.field, piece.layers):
            found[-1] = Piece(last.field, last.layers, last.start, piece.end)
        elif piece.bytes:
            found.append(piece)
        end = piece.end
    return found


def excerpt(pieces: Sequence[Piece], most: int = 16) -> Excerpt:
    """All pieces, or whole layers from both ends and what lies between them."""
    if len(pieces) <= most:
        return Excerpt(tuple(pieces), (), ())
    cuts = [i for i in range(1, len(pieces)) if pieces[i].field and pieces[i].layers != pieces[i - 1].layers]
    first = min((cut for cut in cuts if cut >= 4), default=most // 2)
    last = max((cut for cut in cuts if first < cut <= len(pieces) - 3), default=len(pieces) - 3)
    return Excerpt(tuple(pieces[:first]), tuple(pieces[first:last]), tuple(pieces[last:]))
