"""The layouts that the kernels are fastest on, and those that attention kernels for AMD read."""

from dataclasses import replace

from statehal.env import Variable
from statehal.layout import ConvStateLayout, FormKind, PoolLayout, page_major, x_packed
from statehal.spec import Attention, ConvRecurrent, Spec

LAYOUT = Variable(
    "STATEHAL_HIP_LAYOUT",
    "page_major",
    "order of new attention pools: page_major; x_packed, K [pages, heads, dim/x, ps, x] and V [pages, heads, dim, ps]; "
    "shuffled, the same K and V [pages, heads, ps/x, dim, x]; x is 16 bytes",
    ("page_major", "x_packed", "shuffled"),
)

ALIGN = 16
"""Rows and fields start at multiples of this many bytes: what one access of a thread moves."""


def pool_layout(spec: Spec, page_size: int) -> PoolLayout:
    """Page-major, or what ``STATEHAL_HIP_LAYOUT`` says; a spec without K and V is page-major whatever it says.

    Every field has the page form, ``[pages, ...]`` with the strides of the pool, for kernels that take strides. In
    page-major pools the widest rows have the row form, too, which kernels index fastest; and where they are of one
    width, and in packed pools, the block form, dense blocks for kernels that take none.

    Raises:
        LayoutError: the spec or the page does not fit pieces of 16 bytes.
    """
    order = LAYOUT.choice()
    packed = order != "page_major" and isinstance(spec, Attention)
    if packed:
        made = x_packed(spec, page_size, values="shuffled" if order == "shuffled" else "transposed", align=ALIGN)
    else:
        made = page_major(spec, page_size, align=ALIGN)
    wide = {field.name: field.row_bytes for field in made.fields if field.name in ("k", "v", "latent")}
    dense: tuple[FormKind, ...] = ("block",) if len(set(wide.values())) == 1 else ()
    forms: tuple[FormKind, ...] = ("page", *dense) if packed else ("row", *dense, "page")
    return replace(made, forms=tuple((field.name, forms if field.name in wide else ("page",)) for field in made.fields))


def conv_layout(spec: ConvRecurrent) -> ConvStateLayout:
    """Rows first, so that channels lie together, in the ring protocol, whose commits move nothing."""
    return ConvStateLayout(window_order="rows_first", protocol="ring", align=ALIGN)
