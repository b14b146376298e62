"""The layouts that CANN's operators take, and what this backend serves in them."""

from dataclasses import replace

from statehal.layout import ConvStateLayout, FormKind, PoolLayout, nz, page_major
from statehal.spec import REPLAY, Attention, ConvRecurrent, Latent, Spec, itemsize
from statehal_ascend_npu.variables import CONV, KV

STORES = ("float32", "bfloat16", "float16")
"""Storage dtypes of KV rows: those of models. Quantised rows and scales are left to the reference."""

WINDOWS = ("float32", "bfloat16", "float16")
"""Dtypes of conv windows; those of four bytes are convolved by torch."""

CHANNELS = 16
"""The conv operator takes channels in multiples of this many, and does not check it."""

ALIGN = 32
"""Rows and fields start at multiples of this many bytes: a block of an NPU's memory accesses."""

PIECE = 32
"""Bytes of a piece that rows in the NZ format are cut into."""


def pool_layout(spec: Spec, page_size: int) -> PoolLayout:
    """Page-major, ND, or NZ where ``STATEHAL_ASCEND_NPU_KV`` says so and every row is whole fractals.

    K, V and latent rows have the block form, dense pages that KV operators and paged attention take, and in ND the row
    form for hosts that read rows. Scales and extra fields, whose narrow blocks would widen the page, have the page
    form.
    """
    fractals = all(field.row_shape[-1] * itemsize(field.dtype) % PIECE == 0 for field in spec.fields())
    fractal = KV.choice() == "NZ" and fractals
    made = nz(spec, page_size) if fractal else page_major(spec, page_size, align=ALIGN)
    dense: tuple[FormKind, ...] = ("block",) if fractal else ("block", "row")
    forms = {field.name: dense if field.name in ("k", "v", "latent") else ("page",) for field in made.fields}
    return replace(made, forms=tuple(forms.items()))


def conv_layout(spec: ConvRecurrent) -> ConvStateLayout | None:
    """Rows first, in the row form: a layer's windows are one dense tensor, of which each slot is every r-th entry.

    ``None`` for a spec with a replay ring, which needs a window of the ring protocol.
    """
    if any(extra.name == REPLAY for extra in spec.extra):
        return None
    made = ConvStateLayout("rows_first", CHANNELS, "offset", ("row",), ALIGN)
    return replace(made, protocol="rollback") if CONV.choice() == "rollback" else made


def serves_kv(spec: Spec, layout: PoolLayout) -> bool:
    """Whether writes of a sub-pool are ours: unquantised rows in a form of one page a block."""
    if not isinstance(spec, Attention | Latent) or spec.dtype not in STORES or getattr(spec, "scales", None):
        return False
    return all(len(field.token_shape) == 1 and "row" not in layout.kinds(field.name)[:1] for field in layout.fields)


def serves_conv(spec: Spec, layout: PoolLayout) -> bool:
    """Whether windows of a sub-pool are ours: rows first, in a protocol that begins every step at row 0."""
    conv = layout.conv
    if not isinstance(spec, ConvRecurrent) or conv is None or spec.dtype not in WINDOWS:
        return False
    return conv.window_order == "rows_first" and conv.protocol in ("offset", "rollback")
