"""The bytes of conv slots in an image of a pool: windows by protocol, cursors, and the spans of every field."""

import struct
from collections.abc import Iterable

from statehal.layout import PoolLayout
from statehal.spec import REPLAY, ConvRecurrent
from statehal.testing.oracles.bytes import FORMATS, address
from statehal.testing.oracles.conv import Places, Rows

Span = tuple[int, int]
"""First byte, and the byte past the last."""


class SlotBytes:
    """Reads slots, named by their physical pages, from images of the buffer.

    Attributes:
        places: where rows lie in the windows.
        recurrent: names of the recurrent fields, the replay ring left out.
    """

    def __init__(self, spec: ConvRecurrent, layout: PoolLayout) -> None:
        assert layout.conv is not None
        self.layout = layout
        self.spec = spec
        self.places = Places(layout.conv.protocol, spec.width, spec.window_rows)
        self.rows_first = layout.conv.window_order == "rows_first"
        self.recurrent = [one.name for one in layout.fields if one.name not in ("conv", "cursor", REPLAY)]

    def cursor(self, image: bytes | bytearray, page: int) -> int:
        """The cursor of a slot."""
        at = address(self.layout.field("cursor"), self.spec.layers[0], page, 0, (0,))
        return int(struct.unpack_from("<i", image, at)[0])

    def window(self, image: bytes | bytearray, page: int, layer: int, rows: Iterable[int]) -> Rows:
        """Rows of a window by number: ``[rows][channels]``, without channels that pad."""
        field = self.layout.field("conv")
        result = []
        for row in rows:
            values = []
            for channel in range(self.spec.channels):
                element = (row, channel) if self.rows_first else (channel, row)
                at = address(field, layer, page, 0, element)
                if field.dtype == "bfloat16":
                    values.append(float(struct.unpack("<f", b"\0\0" + bytes(image[at : at + 2]))[0]))
                else:
                    values.append(float(struct.unpack_from(FORMATS[field.dtype], image, at)[0]))
            result.append(values)
        return result

    def live(self, image: bytes | bytearray, page: int, layer: int) -> Rows:
        """The live rows, oldest first."""
        return self.window(image, page, layer, self.places.live(self.cursor(image, page)))

    def span(self, field_name: str, layer: int, page: int) -> list[Span]:
        """The bytes that a layer of a field has in a slot; none where the field lacks the layer."""
        field = self.layout.field(field_name)
        if not any(layer in group for group in field.layers):
            return []
        start = address(field, layer, page, 0, (0,) * len(field.row_shape))
        return [(start, start + field.page_extent)]

    def spans(self, names: Iterable[str], page: int, layers: Iterable[int] | None = None) -> list[Span]:
        """The bytes that these fields have in a slot, in these layers or in all."""
        chosen = self.spec.layers if layers is None else tuple(layers)
        return [span for name in names for layer in chosen for span in self.span(name, layer, page)]

    def whole(self, page: int) -> list[Span]:
        """A whole slot, from its first field to its last, with what pads them."""
        parts = self.spans([one.name for one in self.layout.fields], page)
        return [(min(start for start, _ in parts), max(end for _, end in parts))]

    def payload(self, image: bytes | bytearray, page: int) -> bytes:
        """The bytes of all fields of a slot one after the other, without what pads them."""
        parts = self.spans([one.name for one in self.layout.fields], page)
        return b"".join(bytes(image[start:end]) for start, end in parts)


def without(image: bytearray, before: bytes | bytearray, spans: Iterable[Span]) -> bytearray:
    """The image with the bytes of ``before`` in these spans: what may differ no longer does."""
    result = bytearray(image)
    for start, end in spans:
        result[start:end] = before[start:end]
    return result
