"""Tags as real bytes: written through views with kernel ids, read at addresses computed from a layout's integers."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import torch

from pool.model import Tag
from statehal.ids import KernelIds, Unit
from statehal.layout import AddressForm, FieldLayout
from statehal.pool import SubPool

_PACK = {"float32": struct.Struct("<f"), "int32": struct.Struct("<i")}
ELEMENTS = 64
"""An element holds ``tag * ELEMENTS`` and its own number in the row, so that no two elements are alike."""


class Codec:
    """Tokens of one sub-pool: tag ``t`` fills every element of every field and layer with a number made from it.

    Tag 0 is zero bytes, tag -1 is NaN in floating fields and 0 in integer ones.
    """

    def __init__(self, sub: SubPool) -> None:
        self.sub = sub
        self.page_size = sub.page_size
        self.kinds = {one.name: sub.layout.kinds(one.name)[0] for one in sub.layout.fields}
        self.forms = {(field.name, kind): _form(field, kind) for field, kind in self._used_forms()}
        self.rows: list[tuple[FieldLayout, int, int]] = []  # field, stored layer, number of the first element
        number = 1
        for one in sub.layout.fields:
            for index in range(len(one.layers)):
                self.rows.append((one, index, number))
                number += _elements(one)
        assert number <= ELEMENTS
        self._images: dict[tuple[Tag, ...], list[bytes]] = {}
        self._views = {
            (one.name, index): sub.view(one.name, one.layers[index][0], self.kinds[one.name])
            for one, index, _ in self.rows
        }

    def pages(self, ids: KernelIds) -> list[int]:
        """Physical pages of kernel ids in pages; all forms must agree on them."""
        found = [self.split(ids.of(form).tolist(), form, "pages") for form in self.forms.values()]
        assert not any(any(places) for _, places in found)
        assert all(pages == found[0][0] for pages, _ in found)
        return found[0][0]

    def split(self, numbers: list[int], form: AddressForm, unit: Unit) -> tuple[list[int], list[int]]:
        """Physical pages, and places in them, of kernel ids of one form."""
        step = form.ratio * (self.page_size if form.kind == "page" and unit == "tokens" else 1)
        return [number // step for number in numbers], [number % step for number in numbers]

    def write(self, ids: KernelIds, tags: Sequence[int]) -> None:
        """Write tokens through every view; ids of the sink are skipped, as every kernel does."""
        wanted = torch.tensor(tags).unsqueeze(1)
        for one, index, number in self.rows:
            numbers = ids.of(self.forms[one.name, self.kinds[one.name]])
            rows = wanted * ELEMENTS + torch.arange(number, number + _elements(one))
            keep = numbers >= self.page_size
            view = self._views[one.name, index]
            view[self._index(one, numbers[keep])] = rows[keep].to(view.dtype).reshape(-1, *one.row_shape)

    def require(self, ids: KernelIds, tags: Sequence[Tag]) -> None:
        """Tokens show these tags through every view."""
        for one, index, number in self.rows:
            numbers = ids.of(self.forms[one.name, self.kinds[one.name]])
            rows = self._views[one.name, index][self._index(one, numbers)]
            shown = [self._decode(row, number) for row in rows.reshape(len(numbers), _elements(one)).tolist()]
            assert shown == [0 if tag == -1 and one.dtype == "int32" else tag for tag in tags]

    def image(self, tags: Sequence[Tag]) -> list[bytes]:
        """All bytes of a page whose tokens have those tags, padding included, one string for each of ``ranges``."""
        key = tuple(tags)
        if key not in self._images:
            self._images[key] = self._make_image(key)
        return self._images[key]

    def ranges(self, page: int) -> Iterator[tuple[int, int]]:
        """Where the bytes of a page lie: first byte and length of each piece."""
        layout = self.sub.layout
        if layout.order == "page":
            size = layout.fields[0].page_stride
            yield self.sub.plan.region.offset + page * size, size
        else:
            for one, index, _ in self.rows:
                yield one.base + index * one.layer_stride + page * one.page_stride, one.page_stride

    def holds(self, buffer: bytes, page: int, tags: Sequence[Tag]) -> bool:
        """Whether a page holds exactly these tags."""
        pieces = zip(self.ranges(page), self.image(tags), strict=True)
        return all(buffer.startswith(image, start) for (start, _), image in pieces)

    def find(self, buffer: bytes, page: int) -> list[Tag]:
        """The tags that a page seems to hold, from the first element of each token."""
        one, index, number = self.rows[0]
        start = one.base + index * one.layer_stride + page * one.page_stride
        values = (_PACK[one.dtype].unpack_from(buffer, start + offset)[0] for offset in _token_offsets(one))
        return [self._decode([value], number) for value in values]

    def _make_image(self, tags: tuple[Tag, ...]) -> list[bytes]:
        pieces = [bytearray(size) for _, size in self.ranges(0)]
        shared = self.sub.layout.order == "page"
        for piece, (one, index, number) in enumerate(self.rows):
            start = one.base + index * one.layer_stride - self.sub.plan.region.offset if shared else 0
            target = pieces[0 if shared else piece]
            for tag, offset in zip(tags, _token_offsets(one), strict=True):
                for element, inner in enumerate(_element_offsets(one)):
                    value = self._encode(tag, number + element, one.dtype)
                    _PACK[one.dtype].pack_into(target, start + offset + inner, value)
        return [bytes(piece) for piece in pieces]

    def _encode(self, tag: Tag, number: int, dtype: str) -> float:
        assert tag is not None
        if tag == -1:
            return float("nan") if dtype == "float32" else 0
        return tag and tag * ELEMENTS + number

    def _decode(self, row: Sequence[float], number: int) -> Tag:
        if row[0] != row[0]:
            return -1
        tag, first = divmod(int(row[0]), ELEMENTS)
        expected = [tag * ELEMENTS + number + i for i in range(len(row))] if tag else [0] * len(row)
        assert list(row) == expected, f"a torn row: {row}, first element {first}"
        return tag

    def _index(self, one: FieldLayout, numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.kinds[one.name] == "row":
            return (numbers,)
        return numbers.div(self.page_size, rounding_mode="floor"), numbers.remainder(self.page_size)

    def _used_forms(self) -> Iterable[tuple[FieldLayout, str]]:
        return [(one, kind) for one in self.sub.layout.fields for kind in self.sub.layout.kinds(one.name)]


def _form(field: FieldLayout, kind: str) -> AddressForm:
    """The form by its definition: rows lie every token stride, pages every page stride."""
    return AddressForm("row", field.page_stride // field.token_strides[0]) if kind == "row" else AddressForm("page", 1)


def _elements(field: FieldLayout) -> int:
    return len(list(_element_offsets(field)))


def _element_offsets(field: FieldLayout) -> Iterator[int]:
    for element in product(*map(range, field.row_shape)):
        yield sum(i * stride for i, stride in zip(element, field.row_strides, strict=True))


def _token_offsets(field: FieldLayout) -> Iterator[int]:
    for digits in product(*map(range, field.token_shape)):
        yield sum(i * stride for i, stride in zip(digits, field.token_strides, strict=True))
