"""The fields of one sub-pool, the forms its kernels use, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import lcm
from typing import Literal, get_args

from statehal.errors import AddressBoundError, LayoutError
from statehal.layout.conv_state import ConvStateLayout
from statehal.layout.field import FieldLayout
from statehal.layout.forms import AddressForm, FormKind, address_form, block_bytes, largest_id

INT32_IDS = 2**31
"""Ids of forms in use stay below this unless a backend declares 64-bit ids."""


@dataclass(frozen=True)
class PoolLayout:
    """A set of fields over ``num_pages`` pages, and the address forms in use for each.

    Attributes:
        fields: every kind of row that a page holds.
        forms: ``(field name, kinds)``; a mapping is accepted. A field that is not named uses ``("page",)``.
        num_pages: pages, page 0 (the sink) included.
        order: ``"page"``: a page is one contiguous envelope; ``"layer"``: each layer of each field is contiguous over
            all pages, so the sub-pool has a buffer to itself.
        conv: order, padding and commit protocol of the conv window, where there is one.
        align: every page of an envelope starts at a multiple of this many bytes, as its fields do in page 0.
    """

    fields: tuple[FieldLayout, ...]
    forms: tuple[tuple[str, tuple[FormKind, ...]], ...]
    num_pages: int = 1
    order: Literal["page", "layer"] = "page"
    conv: ConvStateLayout | None = None
    align: int = 1

    def __post_init__(self) -> None:
        forms = self.forms.items() if isinstance(self.forms, Mapping) else self.forms
        object.__setattr__(self, "forms", tuple((name, tuple(kinds)) for name, kinds in forms))
        names = [field.name for field in self.fields]
        if not names or len(set(names)) != len(names):
            raise LayoutError(f"a layout needs fields of distinct names: got {names}")
        stray = {name for name, _ in self.forms} - set(names)
        if stray:
            raise LayoutError(f"forms are given for {sorted(stray)}, which are no fields: {names}")
        for name, kinds in self.forms:
            if not kinds or set(kinds) - set(get_args(FormKind)):
                raise LayoutError(f"field {name!r} has forms {kinds}: expected one or more of {get_args(FormKind)}")
        if self.num_pages < 1:
            raise LayoutError(f"num_pages={self.num_pages}: expected at least 1, the sink")
        if len({field.page_size for field in self.fields}) != 1:
            raise LayoutError(
                f"fields of one layout need one page size: {[(f.name, f.page_size) for f in self.fields]}"
            )
        if self.order == "page" and len({field.page_stride for field in self.fields}) != 1:
            raise LayoutError("fields of one envelope need one page_stride")

    @property
    def page_size(self) -> int:
        """Tokens of a page; 1 for slots."""
        return self.fields[0].page_size

    @property
    def payload_bytes(self) -> int:
        """Bytes of one page that hold data."""
        return sum(field.payload_bytes for field in self.fields)

    @property
    def page_bytes(self) -> int:
        """Bytes that one more page takes, padding included."""
        if self.order == "page":
            return self.fields[0].page_stride
        return sum(len(field.layers) * field.page_stride for field in self.fields)

    @property
    def origin(self) -> int:
        """First byte in the buffer."""
        return min(field.base for field in self.fields)

    @property
    def total_bytes(self) -> int:
        """Bytes from the start of the buffer to past the last page."""
        if self.order == "page":
            return self.origin + self.num_pages * self.page_bytes
        return max(f.base + (len(f.layers) - 1) * f.layer_stride + self.num_pages * f.page_stride for f in self.fields)

    @property
    def granularity(self) -> int:
        """What ``page_stride`` must be a multiple of, so that fields stay aligned and the forms in use exist."""
        result = self.align
        for field in self.fields:
            result = lcm(result, field.itemsize)
            for kind in self.kinds(field.name):
                if kind == "row" and field.token_stride is not None:
                    result = lcm(result, field.token_stride)
                elif kind == "block":
                    result = lcm(result, block_bytes(field))
        return result

    def field(self, name: str) -> FieldLayout:
        """The field of that name, or a ``LayoutError`` that lists the names."""
        for field in self.fields:
            if field.name == name:
                return field
        raise LayoutError(f"no field {name!r}: this layout has {[field.name for field in self.fields]}")

    def kinds(self, name: str) -> tuple[FormKind, ...]:
        """Kinds of form in use for a field, preferred first."""
        return dict(self.forms).get(name, ("page",))

    def form(self, name: str, kind: FormKind | None = None) -> AddressForm:
        """A form of a field: the preferred one, or the one of that kind."""
        return address_form(self.field(name), kind or self.kinds(name)[0])

    @property
    def address_forms(self) -> tuple[AddressForm, ...]:
        """Each distinct form in use, in order of first use: one tensor of kernel ids each."""
        used = (address_form(field, kind) for field in self.fields for kind in self.kinds(field.name))
        return tuple(dict.fromkeys(used))

    def resize(self, num_pages: int, page_stride: int | None = None) -> "PoolLayout":
        """The same layout over another number of pages, its envelope widened to ``page_stride`` bytes if given."""
        if self.order == "page":
            stride = self.page_bytes if page_stride is None else page_stride
            fields = [replace(field, page_stride=stride) for field in self.fields]
        else:
            fields, base = [], 0
            for field in self.fields:
                base = -(-base // field.itemsize) * field.itemsize
                fields.append(replace(field, base=base, layer_stride=num_pages * field.page_stride))
                base += len(field.layers) * num_pages * field.page_stride
        return replace(self, fields=tuple(fields), num_pages=num_pages)

    def at(self, offset: int) -> "PoolLayout":
        """The same layout, ``offset`` bytes further into the buffer."""
        return replace(self, fields=tuple(replace(field, base=field.base + offset) for field in self.fields))

    def check(self) -> None:
        """Prove that no two fields share a byte and that an envelope holds all of its page.

        Raises:
            LayoutError: naming both fields, or the field that leaves its envelope.
        """
        pieces = sorted(
            (start, start + length, field.name) for field in self.fields for _, start, length in field.runs()
        )
        for (_, end, first), (start, _, second) in pairwise(pieces):
            if start < end:
                raise LayoutError(
                    f"fields {first!r} and {second!r} share bytes: one ends at {end}, one begins at {start}"
                )
        end = pieces[-1][1] - self.origin
        if self.order == "page" and end > self.page_bytes:
            raise LayoutError(f"field {pieces[-1][2]!r} ends {end} bytes into a page of {self.page_bytes}")

    @property
    def largest_id(self) -> int:
        """The largest id that a token can have in the forms in use."""
        fields = [(field, kind) for field in self.fields for kind in self.kinds(field.name)]
        return max(largest_id(field, kind, self.num_pages) for field, kind in fields)

    def check_bounds(self, name: str) -> None:
        """Refuse ids of the forms in use that do not fit into int32.

        Raises:
            AddressBoundError: with the id, the bound and what to lower.
        """
        for field in self.fields:
            for kind in self.kinds(field.name):
                top = largest_id(field, kind, self.num_pages)
                if top >= INT32_IDS:
                    step = address_form(field, kind).multiplier("tokens", field.page_size)
                    pages = (INT32_IDS - field.page_size) // step + 1
                    raise AddressBoundError(
                        f"{kind} ids of field {field.name!r} in {name!r} reach {top} with {self.num_pages} pages of "
                        f"{self.page_bytes} bytes, past the int32 bound {INT32_IDS - 1} (fix: lower the budget so that "
                        f"{name!r} has at most {pages} pages, use another address form, or a backend with 64-bit ids)"
                    )
