"""Parts: the pieces in which state is stored, described as data; no torch, no storage.

An object is a *span* of ``object_tokens`` tokens of a sub-pool, or a *point*, the conv and recurrent state at a token
count. It is cut into parts by layer group and head group. A part's payload is canonical bytes, ``[layer][section][head]
[row][dim]`` without padding, so neither its size nor its bytes depend on topology, page size, layout or device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

from statehal.portability.grouping import Grouping, SubPoolGrouping
from statehal.portability.sections import Section, sections
from statehal.spec import Spec

ObjectKind = Literal["span", "point"]
ALIGNMENT = 64
"""Bytes to which each part is aligned in the buffer of an object."""


@dataclass(frozen=True)
class Piece:
    """The rows of one section of one layer in a part: ``[heads, rows, dim]``, dense.

    Attributes:
        layer: model layer id that owns the rows.
        heads: ``(start, stop)`` among the section's heads in the whole model.
        rows: tokens of a span; live window rows, or 1, of a point.
        offset: first byte in the part's payload.
    """

    layer: int
    section: Section
    heads: tuple[int, int]
    rows: int
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the piece."""
        return (self.heads[1] - self.heads[0]) * self.rows * self.section.row_bytes


@dataclass(frozen=True)
class PartLayout:
    """What one part of every object of a sub-pool holds, and where in its payload.

    Attributes:
        subpool: name of the spec.
        kind: span or point.
        tokens: tokens of a span; 0 for a point, whose key has the token count.
        layers: ``(start, stop)``: positions of the layer group among the spec's layers.
        heads: ``(group, groups)``: which head group, of how many; sections that are cut into another number of groups
            make parts of their own, and so do rows that every tensor-parallel rank keeps whole: ``None``.
        pieces: in the order of the payload.
    """

    subpool: str
    kind: ObjectKind
    tokens: int
    layers: tuple[int, int]
    heads: tuple[int, int] | None
    pieces: tuple[Piece, ...]

    @cached_property
    def id(self) -> str:  # kept: stores ask for it at every call
        """Names the part within an object, such as ``layers4-8.heads2of8`` or ``layers4-8.whole``."""
        heads = "whole" if self.heads is None else f"heads{self.heads[0]}of{self.heads[1]}"
        return f"layers{self.layers[0]}-{self.layers[1]}.{heads}"

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return sum(piece.nbytes for piece in self.pieces)

    def as_dict(self) -> dict[str, Any]:
        """The part as JSON can hold it: for the metadata of a file, and for fingerprints."""
        return {
            "subpool": self.subpool,
            "kind": self.kind,
            "tokens": self.tokens,
            "layers": list(self.layers),
            "heads": None if self.heads is None else list(self.heads),
            "nbytes": self.nbytes,
            "pieces": [
                {
                    "layer": piece.layer,
                    "section": piece.section.name,
                    "dtype": piece.section.dtype,
                    "heads": list(piece.heads),
                    "rows": piece.rows,
                    "dim": piece.section.dim,
                    "offset": piece.offset,
                }
                for piece in self.pieces
            ],
        }


@dataclass(frozen=True)
class ObjectLayout:
    """Parts one after another in one buffer, each at a multiple of ``ALIGNMENT``: what a rank gathers and scatters.

    A part's payload is ``buffer[offset : offset + part.nbytes]``.

    Attributes:
        room: bytes before each part that are nobody's, a multiple of ``ALIGNMENT``.
    """

    parts: tuple[PartLayout, ...]
    room: int = 0

    @cached_property
    def _bounds(self) -> tuple[int, ...]:
        """Where the room of each part begins, and the end: summed up once, because every gather and restore asks."""
        sizes = (self.room + -(-part.nbytes // ALIGNMENT) * ALIGNMENT for part in self.parts)
        return tuple(accumulate(sizes, initial=0))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First byte of each part in the buffer."""
        return tuple(start + self.room for start in self._bounds[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self._bounds[-1]

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Every piece, and its first byte in the buffer."""
        for offset, part in zip(self.offsets, self.parts, strict=True):
            for piece in part.pieces:
                yield offset + piece.offset, piece


def parts(spec: Spec, grouping: Grouping) -> tuple[PartLayout, ...]:
    """All parts of an object of a sub-pool, layer group by layer group; of each, head groups, then whole rows.

    Args:
        spec: of the whole model; for a sub-pool that is not certified, the rank's own.
        grouping: made from the same specs.
    """
    sizes = grouping.of_subpool(spec.name)
    kind: ObjectKind = "span" if spec.kind == "tokens" else "point"
    tokens = grouping.object_tokens if kind == "span" else 0
    cuts = dict.fromkeys(sizes.groups(one.heads) for one in sections(spec) if one.heads > 1)
    heads = [(group, groups) for groups in cuts for group in range(groups)]
    found = []
    for start in range(0, len(spec.layers), sizes.layers):
        span = start, min(start + sizes.layers, len(spec.layers))
        for cut in (*heads, None):
            pieces = tuple(_pieces(spec, sizes, span, cut, tokens))
            if pieces:
                found.append(PartLayout(spec.name, kind, tokens, span, cut, pieces))
    return tuple(found)


def _pieces(
    spec: Spec, sizes: SubPoolGrouping, layers: tuple[int, int], cut: tuple[int, int] | None, tokens: int
) -> Iterator[Piece]:
    offset = 0
    for layer in spec.layers[slice(*layers)]:
        for section in sections(spec):
            groups = sizes.groups(section.heads) if section.heads > 1 else None
            if layer not in section.layers or groups != (cut and cut[1]):
                continue
            size = section.heads // (groups or 1)
            first = cut[0] * size if cut else 0
            piece = Piece(layer, section, (first, first + size), section.count or tokens, offset)
            offset += piece.nbytes
            yield piece
