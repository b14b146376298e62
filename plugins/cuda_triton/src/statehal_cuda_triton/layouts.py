"""The layouts that the kernels are fastest on, and those that hosts may ask for."""

from dataclasses import replace

from statehal.env import Variable
from statehal.layout import ConvStateLayout, FormKind, PoolLayout, page_major, token_major
from statehal.spec import ConvRecurrent, Spec

LAYOUT = Variable(
    "STATEHAL_CUDA_TRITON_LAYOUT",
    "page_major",
    "order of new pools: page_major has a dense block a page, token_major one table of ids for rows of any width",
    ("page_major", "token_major"),
)

ALIGN = 16
"""Rows and fields start at multiples of this many bytes: what one access of a thread moves."""


def pool_layout(spec: Spec, page_size: int) -> PoolLayout:
    """Page-major, or token-major where ``STATEHAL_CUDA_TRITON_LAYOUT`` says so.

    Fields of the widest rows have the row form, which kernels index fastest, and in page-major pools of equal rows the
    block form, which paged attention reads. Scales and extra fields, whose narrow rows would widen the page, have the
    page form.
    """
    order = LAYOUT.choice()
    made = (
        page_major(spec, page_size, align=ALIGN) if order == "page_major" else token_major(spec, page_size, align=ALIGN)
    )
    wide = {field.name: field.row_bytes for field in made.fields if field.name in ("k", "v", "latent")}
    forms: dict[str, tuple[FormKind, ...]] = dict.fromkeys((field.name for field in made.fields), ("page",))
    dense = order == "page_major" and len(set(wide.values())) == 1
    forms |= dict.fromkeys(wide, ("row", "block") if dense else ("row",))
    if order == "token_major":
        forms = dict.fromkeys(forms, ("row",))
    return replace(made, forms=tuple(forms.items()))


def conv_layout(spec: ConvRecurrent) -> ConvStateLayout:
    """Rows first, so that channels lie together, in the ring protocol, whose commits move nothing."""
    return ConvStateLayout(window_order="rows_first", protocol="ring", align=ALIGN)
