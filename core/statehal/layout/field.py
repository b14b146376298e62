"""One field of a layout: an affine map from (layer, token, element) to a byte address."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from statehal.errors import ArgumentError, LayoutError
from statehal.spec import itemsize
from statehal.spec.base import LayerGroups


@dataclass(frozen=True)
class FieldLayout:
    """Where the rows of one field lie, in bytes.

    The address of a row, and of an element ``e`` in it, is:

        base + layer_index*layer_stride + (token // page_size)*page_stride
             + place(token % page_size) + sum(e[i]*row_strides[i])

    where ``place`` writes the token's place in its page as digits over ``token_shape``, most significant first, and
    multiplies them with ``token_strides``: one digit is the linear case, two serve x-packed caches.

    Attributes:
        layers: one entry a stored layer row: the model layer ids that use it.
        row_shape: elements of one row.
        row_strides: their distances.
        token_shape: digits of a place; ``prod(token_shape)`` is the page size.
        token_strides: what each digit is multiplied with.
    """

    name: str
    dtype: str
    layers: LayerGroups
    row_shape: tuple[int, ...]
    row_strides: tuple[int, ...]
    token_shape: tuple[int, ...]
    token_strides: tuple[int, ...]
    base: int
    layer_stride: int
    page_stride: int

    def __post_init__(self) -> None:
        if len(self.row_shape) != len(self.row_strides) or len(self.token_shape) != len(self.token_strides):
            raise LayoutError(f"field {self.name!r}: every axis needs one size and one stride")
        if not self.row_shape or not self.token_shape or min(*self.row_shape, *self.token_shape, 1) < 1:
            raise LayoutError(f"field {self.name!r}: row_shape and token_shape need sizes of at least 1")
        sizes = (self.base, self.layer_stride, self.page_stride, *self.row_strides, *self.token_strides)
        if min(sizes) < 0 or any(size % self.itemsize for size in sizes):
            raise LayoutError(
                f"field {self.name!r} of {self.dtype}: base and strides {sizes} must be multiples of "
                f"{self.itemsize} bytes and not negative (fix: pad the field to its element size)"
            )
        extent = self.itemsize
        for size, stride in self._axes(with_layers=True):
            if stride < extent:
                raise LayoutError(f"field {self.name!r}: a stride of {stride} bytes overlaps {extent} bytes of data")
            extent = stride * (size - 1) + extent
        if self.page_stride < self.page_extent:
            raise LayoutError(
                f"field {self.name!r}: pages {self.page_stride} bytes apart hold {self.page_extent} bytes"
            )

    @property
    def itemsize(self) -> int:
        """Bytes an element takes."""
        return itemsize(self.dtype)

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        return prod(self.token_shape)

    @property
    def token_stride(self) -> int | None:
        """Bytes between neighbouring tokens of a page; ``None`` where the place is mixed-radix."""
        return self.token_strides[0] if len(self.token_shape) == 1 else None

    @property
    def row_bytes(self) -> int:
        """Payload bytes of one row."""
        return prod(self.row_shape) * self.itemsize

    @property
    def payload_bytes(self) -> int:
        """Payload bytes that all layers of this field have in one page."""
        return len(self.layers) * self.page_size * self.row_bytes

    @property
    def page_extent(self) -> int:
        """Bytes from the first to past the last byte that one layer has in one page."""
        return sum((size - 1) * stride for size, stride in self._axes(with_layers=False)) + self.itemsize

    def layer_index(self, layer: int) -> int:
        """The stored row of a model layer id.

        Raises:
            ArgumentError: this field has no such layer.
        """
        for index, group in enumerate(self.layers):
            if layer in group:
                return index
        known = sorted(one for group in self.layers for one in group)
        raise ArgumentError(f"field {self.name!r} has no layer {layer}: its layers are {known}")

    def address(self, layer: int, token: int, element: tuple[int, ...] | None = None) -> int:
        """Byte address, from the start of the buffer, of a physical token's row or of one element in it."""
        page, place = divmod(token, self.page_size)
        offset = self.base + self.layer_index(layer) * self.layer_stride + page * self.page_stride
        for size, stride in zip(reversed(self.token_shape), reversed(self.token_strides), strict=True):
            place, digit = divmod(place, size)
            offset += digit * stride
        if element is not None:
            offset += sum(e * stride for e, stride in zip(element, self.row_strides, strict=True))
        return offset

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """The contiguous pieces of page 0 as ``(layer_index, start, length)`` in bytes."""
        length = self.itemsize
        outer: list[range] = []
        for size, stride in self._axes(with_layers=False):
            if stride == length and not outer:
                length *= size
            else:
                outer.append(range(0, size * stride, stride))
        for index in range(len(self.layers)):
            start = self.base + index * self.layer_stride
            yield from ((index, start + sum(steps), length) for steps in product(*reversed(outer)))

    def _axes(self, *, with_layers: bool) -> list[tuple[int, int]]:
        """``(size, stride)`` of every axis longer than one, nearest elements first."""
        axes = list(zip(self.row_shape + self.token_shape, self.row_strides + self.token_strides, strict=True))
        if with_layers:
            axes.append((len(self.layers), self.layer_stride))
        return sorted(((size, stride) for size, stride in axes if size > 1), key=lambda axis: axis[1])
