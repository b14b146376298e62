"""The three address forms of a field, each an id space of its own, derived from the field's integers alone."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from statehal.errors import LayoutError
from statehal.layout.field import FieldLayout

FormKind = Literal["row", "block", "page"]
"""Names of the address forms."""


@dataclass(frozen=True, order=True)
class AddressForm:
    """How kernel ids index a view of a field; fields of one kind and ratio share their ids.

    | kind  | view                                               | token id                   | page id        |
    |-------|----------------------------------------------------|----------------------------|----------------|
    | row   | one row every ``token_stride``: ``[n_rows, *row]`` | ``page*ratio + t % ps``    | ``page*ratio`` |
    | block | dense: ``[n_blocks, *token_shape, *row]``          | ``page*ratio*ps + t % ps`` | ``page*ratio`` |
    | page  | strided: ``[num_pages, *token_shape, *row]``       | ``page*ps + t % ps``       | ``page``       |

    ``ratio`` is how many rows (or blocks) of the view lie between the starts of two pages.
    """

    kind: FormKind
    ratio: int

    def multiplier(self, unit: Literal["tokens", "pages"], page_size: int) -> int:
        """What a physical page number is multiplied with to give an id of this form in that unit."""
        if unit == "pages" or self.kind == "row":
            return self.ratio
        return self.ratio * page_size


@dataclass(frozen=True)
class ViewGeometry:
    """Arguments of ``as_strided``, in elements of ``dtype`` from the start of the buffer."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def row_form(field: FieldLayout) -> AddressForm:
    """The row form.

    Raises:
        LayoutError: the place is mixed-radix, or a page is not a whole number of row steps.
    """
    step = field.token_stride
    if step is None:
        raise LayoutError(
            f"field {field.name!r} has no row form: its place in a page is mixed-radix {field.token_shape} "
            f"(fix: use the block or page form)"
        )
    if field.page_stride % step:
        raise LayoutError(
            f"field {field.name!r} has no row form: page_stride {field.page_stride} is not a multiple of "
            f"token_stride {step} (fix: let the planner widen the page, or use the page form)"
        )
    return AddressForm("row", field.page_stride // step)


def block_bytes(field: FieldLayout) -> int:
    """Bytes of one block of the block form.

    Raises:
        LayoutError: the rows of a page are not dense, so no block exists.
    """
    size = field.page_extent
    step = field.token_stride
    if step is not None:
        size = -(-size // step) * step
    if size != field.page_size * field.row_bytes:
        raise LayoutError(
            f"field {field.name!r} has no block form: a page's rows take {field.page_size * field.row_bytes} bytes "
            f"but span {size} (fix: use the row or page form)"
        )
    return size


def block_form(field: FieldLayout) -> AddressForm:
    """The block form.

    Raises:
        LayoutError: rows are not dense, or a page is not a whole number of blocks.
    """
    size = block_bytes(field)
    if field.page_stride % size:
        raise LayoutError(
            f"field {field.name!r} has no block form: page_stride {field.page_stride} is not a multiple of the "
            f"block's {size} bytes (fix: let the planner widen the page, or use the row or page form)"
        )
    return AddressForm("block", field.page_stride // size)


def address_form(field: FieldLayout, kind: FormKind) -> AddressForm:
    """The form of that kind, or a ``LayoutError`` that says why the field lacks it."""
    if kind == "row":
        return row_form(field)
    if kind == "block":
        return block_form(field)
    if kind == "page":
        return AddressForm("page", 1)
    raise LayoutError(f"unknown address form {kind!r}: expected 'row', 'block' or 'page'")


def view_geometry(field: FieldLayout, kind: FormKind, layer: int, num_pages: int) -> ViewGeometry:
    """The view that ids of this form index for one layer; it ends on its last valid row.

    Raises:
        LayoutError: the field lacks the form.
        ArgumentError: the field has no such layer.
    """
    form = address_form(field, kind)
    size = field.itemsize
    offset = field.base + field.layer_index(layer) * field.layer_stride
    row = tuple(stride // size for stride in field.row_strides)
    if kind == "row":
        count, shape = (num_pages - 1) * form.ratio + field.page_size, field.row_shape
        strides = (field.token_strides[0] // size, *row)
    else:
        count, shape = (num_pages - 1) * form.ratio + 1, field.token_shape + field.row_shape
        page_step = (field.page_stride // form.ratio) // size
        strides = (page_step, *(stride // size for stride in field.token_strides), *row)
    return ViewGeometry(field.dtype, (count, *shape), strides, offset // size)


def largest_id(field: FieldLayout, kind: FormKind, num_pages: int) -> int:
    """The largest id that a token or page can have in this form."""
    form = address_form(field, kind)
    return (num_pages - 1) * form.multiplier("tokens", field.page_size) + prod(field.token_shape) - 1
