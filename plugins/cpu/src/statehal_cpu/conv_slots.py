"""A conv sub-pool as the extension addresses it: integers of its layout."""

from types import ModuleType
from typing import TYPE_CHECKING

from statehal.layout import FieldLayout
from statehal.pool import SubPool
from statehal.spec import REPLAY, ConvRecurrent

if TYPE_CHECKING:
    from statehal_cpu._native import Conv

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of windows, inputs and outputs."""


def serves(sub: SubPool) -> bool:
    """Whether the kernels take the windows of a sub-pool of slots as they are stored."""
    conv, spec = sub.layout.conv, sub.spec
    assert isinstance(spec, ConvRecurrent), "the binding asks for sub-pools of slots alone"
    assert conv is not None, "a layout of slots says how windows are stored"
    dense = sub.layout.field("conv").row_strides[0] == spec.channels * sub.layout.field("conv").itemsize
    return conv.window_order == "rows_first" and conv.protocol == "ring" and spec.dtype in DTYPES and dense


def conv_slots(native: ModuleType, sub: SubPool) -> "tuple[Conv, dict[int, int]]":
    """The slots of a sub-pool that ``serves`` takes, and the number of each model layer id in them."""
    spec, start = sub.spec, sub.buffer.data_ptr()
    assert isinstance(spec, ConvRecurrent)

    def numbers(field: FieldLayout, layer: int) -> tuple[int, int, int]:
        return start + field.address(layer, 0), field.page_stride, field.page_extent

    fields = {field.name: field for field in sub.layout.fields}
    cursor, window = fields.pop("cursor"), fields.pop("conv")
    replays = [fields.pop(REPLAY)] if REPLAY in fields else []
    pages = [
        (view.data_ptr() + index * view.stride(0), view.stride(1), view.shape[2])
        for view in sub.page_views
        for index in range(view.shape[0])
    ]
    slots: Conv = native.Conv(
        sub.view("conv", spec.layers[0]), spec.width, spec.verify_tokens, spec.window_rows, spec.channels,
        sub.layout.num_pages, numbers(cursor, spec.layers[0]), pages,
    )  # fmt: skip
    for layer in spec.layers:
        slots.add_layer(
            numbers(window, layer),
            [numbers(field, layer) for field in fields.values() if _has(field, layer)],
            [numbers(field, layer) for field in replays if _has(field, layer)],
        )
    return slots, {layer: index for index, layer in enumerate(spec.layers)}


def _has(field: FieldLayout, layer: int) -> bool:
    return any(layer in group for group in field.layers)
