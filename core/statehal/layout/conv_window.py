"""The layout of a conv + recurrent slot."""

from statehal.errors import LayoutError
from statehal.layout.conv_state import ConvStateLayout
from statehal.layout.envelope import envelope, packed
from statehal.layout.pool_layout import PoolLayout
from statehal.spec import REPLAY, ConvRecurrent, FieldSpec, Spec, itemsize


def conv_window(spec: Spec, conv: ConvStateLayout | None = None) -> PoolLayout:
    """A slot is a page of size 1: ``conv``, ``state`` and extra rows by layer, and one ``cursor`` for all layers.

    Fields: ``conv`` ``[window_rows, channels]`` (or ``[channels, window_rows]``, which keeps that order in
    ``row_shape``), ``state`` of the spec's shape and dtype where it has one, ``cursor`` ``[1]`` int32.
    """
    if not isinstance(spec, ConvRecurrent):
        raise LayoutError(f"spec {spec.name!r} is a {type(spec).__name__}: conv_window lays out ConvRecurrent")
    conv = conv or ConvStateLayout()
    if conv.protocol != "ring" and any(extra.name == REPLAY for extra in spec.extra):
        raise LayoutError(
            f"spec {spec.name!r} has a replay ring, which needs a window of the ring protocol, not {conv.protocol!r} "
            f"(fix: use a layout of protocol 'ring', or state_slots instead of a replay ring)"
        )
    channels = conv.padded(spec.channels)
    window = (spec.window_rows, channels) if conv.window_order == "rows_first" else (channels, spec.window_rows)
    rows = [FieldSpec("conv", window, spec.dtype, spec.groups())]
    if spec.state is not None:
        rows.append(FieldSpec("state", spec.state, spec.state_dtype, spec.groups()))
    rows += [*spec.fields(), FieldSpec("cursor", (1,), "int32", (sum(spec.groups(), ()),))]
    blocks = [(f, packed(f.row_shape, itemsize(f.dtype)), (1,), (f.row_bytes,), f.row_bytes) for f in rows]
    layout = envelope(blocks, ("page",), conv.align)
    return PoolLayout(layout.fields, (("conv", conv.forms),), conv=conv, align=conv.align)
