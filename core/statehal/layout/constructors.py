"""Layouts of token sub-pools, tight and for one page; the planner widens and repeats them."""

from math import lcm
from typing import Literal

from statehal.errors import LayoutError
from statehal.layout.envelope import Block, envelope, packed
from statehal.layout.field import FieldLayout
from statehal.layout.forms import FormKind
from statehal.layout.pool_layout import PoolLayout
from statehal.spec import FieldSpec, Spec, itemsize

RowOrder = Literal["NHD", "HND"]

ValueOrder = Literal["shuffled", "transposed"]


def page_major(
    spec: Spec, page_size: int, *, order: RowOrder = "NHD", forms: tuple[FormKind, ...] = ("row",), align: int = 1
) -> PoolLayout:
    """One envelope a page: ``[L0_K*ps | L0_V*ps | L1_K*ps | ...]``, fields of unequal layers one after another.

    Args:
        order: rows of a page as ``[ps, heads, dim]`` or ``[heads, ps, dim]``.
        forms: address forms in use, preferred first.
        align: every field of a layer starts at a multiple of this many bytes.
    """
    blocks = [(field, *_rows(field, page_size, order)) for field in _fields(spec, page_size)]
    return envelope(
        [(f, rows, (page_size,), (step,), page_size * f.row_bytes) for f, rows, step in blocks], forms, align
    )


def nz(spec: Spec, page_size: int, *, forms: tuple[FormKind, ...] = ("block",), align: int = 512) -> PoolLayout:
    """Page-major with rows cut into 32-byte fractals, as in Ascend's NZ format.

    Element ``(slot, d)`` of a page lies at ``(d//x)*ps*x + slot*x + d%x`` with ``x = 32 // itemsize``.

    Raises:
        LayoutError: a head's width is not a multiple of ``x``.
    """
    return envelope([_in_pieces(field, page_size, 32, "NZ") for field in _fields(spec, page_size)], forms, align)


def x_packed(
    spec: Spec,
    page_size: int,
    *,
    values: ValueOrder = "shuffled",
    forms: tuple[FormKind, ...] = ("page",),
    align: int = 16,
) -> PoolLayout:
    """Page-major with heads apart, K in pieces of 16 bytes and V across tokens, as attention kernels for AMD read them.

    With ``x = 16 // itemsize``, element ``(slot, d)`` of a head's page lies

    - of ``k`` ``[pages, heads, dim/x, ps, x]`` at ``(d//x)*ps*x + slot*x + d%x``,
    - of ``v``, shuffled, ``[pages, heads, ps/x, dim, x]`` at ``(slot//x)*dim*x + d*x + slot%x``,
    - of ``v``, transposed, ``[pages, heads, dim, ps]`` at ``d*ps + slot``.

    Scales and extra fields are as in ``page_major``.

    Args:
        values: the order of V.

    Raises:
        LayoutError: the spec has no K and V, a head of K is not a multiple of ``x``, or, shuffled, a page is none.
    """
    if values not in ("shuffled", "transposed"):
        raise LayoutError(f"values={values!r}: expected 'shuffled' or 'transposed'")
    fields = _fields(spec, page_size)
    if not {"k", "v"} <= {field.name for field in fields}:
        raise LayoutError(f"spec {spec.name!r} has no K and V to pack: {[field.name for field in fields]}")
    blocks: list[Block] = []
    for field in fields:
        if field.name == "k":
            blocks.append(_in_pieces(field, page_size, 16, "x-packed K"))
        elif field.name == "v":
            blocks.append(_across_tokens(field, page_size, values))
        else:
            strides, step = _rows(field, page_size, "NHD")
            blocks.append((field, strides, (page_size,), (step,), page_size * field.row_bytes))
    return envelope(blocks, forms, align)


def token_major(spec: Spec, page_size: int, *, forms: tuple[FormKind, ...] = ("row",), align: int = 1) -> PoolLayout:
    """One entry a token: ``[K0 | V0 | K1 | V1 | .. | pad]``; rows of any width share one table of ids.

    Args:
        align: every row starts, and every entry ends, at a multiple of this many bytes.
    """
    _fields(spec, page_size)
    tight = page_major(spec, 1, align=align)
    unit = lcm(align, *(field.itemsize for field in tight.fields))
    entry = -(-tight.page_bytes // unit) * unit
    fields = tuple(
        FieldLayout(
            f.name,
            f.dtype,
            f.layers,
            f.row_shape,
            f.row_strides,
            (page_size,),
            (entry,),
            f.base,
            f.layer_stride,
            entry * page_size,
        )
        for f in tight.fields
    )
    return PoolLayout(fields, tuple((field.name, forms) for field in fields), align=align)


def layer_major(
    spec: Spec, page_size: int, *, order: RowOrder = "NHD", forms: tuple[FormKind, ...] = ("row",)
) -> PoolLayout:
    """Per-layer pools: each layer of each field is contiguous over all pages and has no other layer beside it."""
    fields = []
    for field in _fields(spec, page_size):
        strides, step = _rows(field, page_size, order)
        page = page_size * field.row_bytes
        fields.append(
            FieldLayout(
                field.name, field.dtype, field.layers, field.row_shape, strides, (page_size,), (step,), 0, page, page
            )
        )
    return PoolLayout(tuple(fields), tuple((field.name, forms) for field in fields), order="layer").resize(1)


def _fields(spec: Spec, page_size: int) -> tuple[FieldSpec, ...]:
    if spec.kind != "tokens":
        raise LayoutError(f"spec {spec.name!r} keeps slots, not tokens (fix: use conv_window)")
    if not isinstance(page_size, int) or page_size < 1:
        raise LayoutError(f"page_size={page_size!r} for {spec.name!r}: expected an integer of at least 1")
    return spec.fields()


def _in_pieces(field: FieldSpec, page_size: int, width: int, name: str) -> Block:
    """Heads apart, each cut into pieces of ``width`` bytes, of which the tokens of a page lie side by side."""
    size = itemsize(field.dtype)
    x, (*heads, dim) = width // size, field.row_shape
    if dim % x:
        raise LayoutError(
            f"field {field.name!r} has rows of {dim}: {name} needs a multiple of {x} (fix: use page_major)"
        )
    shape = (*heads, dim // x, x)
    return (
        FieldSpec(field.name, shape, field.dtype, field.layers),
        (*packed(shape[:-1], page_size * width), size),
        (page_size,),
        (width,),
        page_size * field.row_bytes,
    )


def _across_tokens(field: FieldSpec, page_size: int, order: ValueOrder) -> Block:
    """Heads apart, of which an element of neighbouring tokens lies side by side: of all of a page, or of ``x``."""
    size = itemsize(field.dtype)
    (_, dim), x = field.row_shape, 16 // size
    together = page_size if order == "transposed" else x
    if page_size % together:
        raise LayoutError(
            f"field {field.name!r} in pages of {page_size}: shuffled V needs a multiple of {x} tokens (fix: use a page "
            f"size of {-(-page_size // x) * x}, or page_major)"
        )
    strides = (page_size * dim * size, together * size)
    if order == "transposed":
        return field, strides, (page_size,), (size,), page_size * field.row_bytes
    return field, strides, (page_size // x, x), (dim * x * size, size), page_size * field.row_bytes


def _rows(field: FieldSpec, page_size: int, order: RowOrder) -> tuple[tuple[int, ...], int]:
    """Row strides and token stride of a page of that order."""
    if order not in ("NHD", "HND"):
        raise LayoutError(f"order={order!r}: expected 'NHD' or 'HND'")
    size = itemsize(field.dtype)
    if order == "NHD" or len(field.row_shape) == 1:
        return packed(field.row_shape, size), field.row_bytes
    head = field.row_bytes // field.row_shape[0]
    return (page_size * head, *packed(field.row_shape[1:], size)), head
