"""One page of a sub-pool, to scale."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from statehal.cli.picture.drawing import MARGIN, THIN, WIDTH, Drawing, fits, short
from statehal.cli.picture.numbers import count, size
from statehal.cli.picture.pieces import Excerpt, Piece, entry_bytes, entry_pieces, excerpt, page_pieces
from statehal.layout import PoolLayout

BREAK = 150.0
"""Units across of what stands for the pieces that are not drawn."""

_INNER = WIDTH - 2 * MARGIN
_HEIGHT = 54.0


def envelope(key: str, name: str, layout: PoolLayout, colours: Mapping[str, str]) -> str:
    """The SVG of one page; ``colours`` are the classes of the fields."""
    drawing = Drawing(key)
    entry = entry_bytes(layout)
    if layout.order == "layer":
        height = _ranges(drawing, layout, colours)
        how = "its rows lie in one range a layer and field"
    elif entry is None:
        height = _strip(drawing, 10, excerpt(page_pieces(layout)), colours, layout.page_bytes, "page")
        how = "its rows lie one after another, padding last"
    else:
        height = _entries(drawing, layout, entry, colours)
        how = f"its {layout.page_size} tokens have one entry of {entry:,} bytes each"
    held = ", ".join(f"{field.name} of {count(len(field.layers), 'layer')}" for field in layout.fields)
    title = f"One page of {name}: {layout.page_bytes:,} bytes"
    return drawing.svg(title, f"{title}; {how}; it holds {held}.", height)


def thin_fields(layout: PoolLayout) -> set[str]:
    """Fields whose pieces are too thin to see in the picture of a page."""
    if layout.order == "layer":
        return set()
    entry = entry_bytes(layout)
    part = excerpt(page_pieces(layout) if entry is None else entry_pieces(layout, entry))
    scale = (_INNER - (BREAK if part.elided else 0)) / part.drawn_bytes
    seen = {piece.field for piece in part.head + part.tail if piece.bytes * scale >= 1.5}
    return {field.name for field in layout.fields} - seen


def _strip(drawing: Drawing, top: float, part: Excerpt, colours: Mapping[str, str], total: int, what: str) -> float:
    """Pieces to scale with the layers' names above and byte addresses below; returns where the next thing may start."""
    across = _INNER - (BREAK if part.elided else 0)
    scale = across / part.drawn_bytes
    y = top + 20
    x = MARGIN
    ends = [(0, MARGIN, "start")]
    for pieces in (part.head, part.tail):
        _names(drawing, x, top + 13, pieces, scale)
        for piece in pieces:
            _piece(drawing, x, y, piece, scale, colours)
            x += piece.bytes * scale
        if part.elided and pieces is part.head:
            ends.append((part.elided[0].start, x, "end"))
            _break(drawing, x, y, part)
            x += BREAK
            ends.append((part.elided[-1].end, x, "start"))
    ends.append((total, WIDTH - MARGIN, "end"))
    bottom = y + _HEIGHT + 17
    right = 0.0
    for at, where, anchor in ends:
        text = f"{at:,}"
        width = len(text) * 8.1
        left = where if anchor == "start" else where - width
        if left >= right and (at == total or left + width < WIDTH - MARGIN - len(f"{total:,}") * 8.1 - 10):
            drawing.text(where, bottom, text, "address", anchor)
            right = left + width + 10
    return bottom + 9 if not part.elided else _map(drawing, bottom + 12, part, total, what)


def _names(drawing: Drawing, x: float, y: float, pieces: Sequence[Piece], scale: float) -> None:
    """Each layer's name over its pieces, where there is room."""
    for layers, group in groupby(pieces, key=lambda piece: piece.layers):
        members = list(group)
        width = sum(piece.bytes for piece in members) * scale
        if layers and fits(members[0].name, width):
            drawing.text(x + width / 2, y, members[0].name, anchor="middle")
        x += width


def _piece(drawing: Drawing, x: float, y: float, piece: Piece, scale: float, colours: Mapping[str, str]) -> None:
    width = piece.bytes * scale
    where = f"bytes {piece.start:,} to {piece.end - 1:,} ({size(piece.bytes)})"
    data: dict[str, int | str] = {"bytes": piece.bytes, "start": piece.start}
    if not piece.field:
        drawing.rect(x, y, width, _HEIGHT, "hole", f"padding: {where}", field="padding", **data)
        return
    colour = colours[piece.field]
    drawing.rect(x, y, width, _HEIGHT, colour, f"{piece.field} of {piece.name}: {where}", field=piece.field, **data)
    drawing.inside(x, y, width, _HEIGHT, [piece.field, size(piece.bytes)], f"on {colour}")


def _break(drawing: Drawing, x: float, y: float, part: Excerpt) -> None:
    """What stands for the pieces between head and tail: torn edges, and what is missing in words."""
    for edge in (x + 5, x + BREAK - 5):
        steps = " ".join(f"L{edge + (4 if i % 2 else -4):.2f} {y + i * _HEIGHT / 6:.2f}" for i in range(1, 7))
        drawing.path(f"M{edge - 4:.2f} {y:.2f} {steps}", "torn")
    layers = len({piece.layers for piece in part.elided if piece.field})
    lines = [count(layers, "more layer"), size(part.gap), "not drawn"]
    drawing.inside(x + 9, y, BREAK - 18, _HEIGHT, lines, "")


def _map(drawing: Drawing, y: float, part: Excerpt, total: int, what: str) -> float:
    """The whole page or entry to scale: which of its bytes are drawn above."""
    scale = _INNER / total
    x = MARGIN
    for pieces, cls in ((part.head, "drawn"), (part.elided, "elided"), (part.tail, "drawn")):
        width = sum(piece.bytes for piece in pieces) * scale
        drawing.rect(x, y, width, 8, cls, f"{cls}: {size(sum(piece.bytes for piece in pieces))}")
        x += width
    drawing.text(MARGIN, y + 26, f"the whole {what} to scale; solid: what is drawn above", "note")
    return y + 36


def _entries(drawing: Drawing, layout: PoolLayout, entry: int, colours: Mapping[str, str]) -> float:
    """A page of entries, and one entry to scale below it."""
    drawing.text(MARGIN, 16, f"a page of {layout.page_size} entries, to scale", "note")
    scale = _INNER / layout.page_bytes
    x = MARGIN
    width = entry * scale
    single = layout.page_size if width >= THIN else 1
    for token in range(single):
        drawing.rect(x, 24, width, 26, "entry", f"token {token}", bytes=entry, start=token * entry, field="entry")
        drawing.inside(x, 24, width, 26, [f"token {token}"], "on entry")
        x += width
    if layout.page_size > single:
        across = width * (layout.page_size - single)
        drawing.rect(x, 24, across, 26, "elided", f"{layout.page_size - single} more entries")
        drawing.inside(x, 24, across, 26, [f"{layout.page_size - single:,} more, too thin to be drawn singly"])
        x += across
    rest = layout.page_bytes - layout.page_size * entry
    if rest:
        drawing.rect(x, 24, rest * scale, 26, "hole", f"padding: {size(rest)}", bytes=rest, field="page padding")
    first = MARGIN + entry * scale
    drawing.path(f"M{MARGIN} 50 L{MARGIN} 78 M{first:.2f} 50 L{WIDTH - MARGIN} 78", "torn")
    drawing.text(MARGIN + 8, 88, "one entry, to scale", "note")
    return _strip(drawing, 96, excerpt(entry_pieces(layout, entry)), colours, entry, "entry")


def _ranges(drawing: Drawing, layout: PoolLayout, colours: Mapping[str, str]) -> float:
    """A page of a layer-major layout: a piece in the range of each layer of each field, all at one scale."""
    scale = _INNER / max(field.page_size * field.row_bytes for field in layout.fields)
    y = 10.0
    for field in layout.fields:
        length = field.page_size * field.row_bytes
        piece = Piece(field.name, field.layers[0], 0, length)
        apart = f", and one in each of {len(field.layers) - 1} more layers" if len(field.layers) > 1 else ""
        drawing.text(MARGIN, y + 13, f"{short(field.name)}: {size(length)} in the range of {piece.name}{apart}", "")
        _piece(drawing, MARGIN, y + 20, piece, scale, colours)
        y += _HEIGHT + 34
    return y
