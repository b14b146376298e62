"""The layouts that the kernels are fastest on."""

from statehal.layout import ConvStateLayout, PoolLayout, page_major
from statehal.spec import ConvRecurrent, Spec

ALIGN = 64
"""Conv windows start at multiples of this many bytes: a line of the cache, and the widest access."""


def pool_layout(spec: Spec, page_size: int) -> PoolLayout:
    """Page-major, heads together: a token's row is one run of bytes."""
    return page_major(spec, page_size)


def conv_layout(spec: ConvRecurrent) -> ConvStateLayout:
    """Rows first, so that channels lie together, in the ring protocol, whose commits move nothing."""
    return ConvStateLayout(window_order="rows_first", protocol="ring", align=ALIGN)
