"""``statehal_conv_state_layout``: what a slot keeps and where, and that zero bytes are an empty one."""

from functools import partial
from typing import Any

import torch

from statehal.layout import ConvStateLayout
from statehal.testing.answers import layout_answer
from statehal.testing.check import check
from statehal.testing.oracles.bytes import address, encoded, first_difference
from statehal.testing.oracles.conv import Places
from statehal.testing.oracles.layouts import field_bytes, held, payload, rows_of
from statehal.testing.reach import reaches
from statehal.testing.slot_cases import FEATURES, SlotCase, cases
from statehal.testing.target import Target


def _answer(target: Target, case: SlotCase) -> tuple[str, ConvStateLayout]:
    name, answer = layout_answer(target, case.spec, 1)
    assert isinstance(answer, ConvStateLayout), f"{name!r} answered a {type(answer).__name__}, not a ConvStateLayout"
    return name, answer


def _pool(target: Target, case: SlotCase) -> Any:
    return target.pool([case.spec, *case.others], tokens=16, requests=3, page_size=16, waste_limit=0.9)


@check("conv_layout", needs=("layout.slots",), cases=cases, features=FEATURES)
def check_the_answer_serves_the_spec(target: Target, case: SlotCase) -> None:
    """Protocol and channel padding serve the spec: a replay ring has the ring protocol, and no channel is lost."""
    name, answer = _answer(target, case)
    if any(extra.name == "replay" for extra in case.spec.extra):
        assert answer.protocol == "ring", f"{name!r} answered {answer.protocol!r} for a spec with a replay ring"
    channels, unit = case.spec.channels, answer.channel_multiple
    found = answer.padded(channels)
    wanted = channels
    while wanted % unit:
        wanted += 1
    assert found == wanted, f"{name!r} stores {found} channels for {channels}: expected {wanted}, a multiple of {unit}"
    again = _answer(target, case)[1]
    assert again == answer, f"{name!r} answered {answer}, and {again} when asked again"


@check("conv_layout", needs=("layout.slots",), cases=cases, features=FEATURES)
def check_a_slot_holds_its_fields(target: Target, case: SlotCase) -> None:
    """A slot has a window, recurrent and extra rows a layer and one int32 cursor, in bytes of their own."""
    name, answer = _answer(target, case)
    layout = _pool(target, case)["conv"].layout
    channels = case.spec.channels
    while channels % answer.channel_multiple:
        channels += 1
    wanted = rows_of(case.spec, 1, channels)
    found = {field.name: held(field) for field in layout.fields}
    assert found == wanted, f"with the answer of {name!r} a slot has {found}, expected {wanted}"
    window = next(field for field in layout.fields if field.name == "conv").row_shape
    rows = case.spec.width - 1 + case.spec.verify_tokens - 1
    shape = (rows, channels) if answer.window_order == "rows_first" else (channels, rows)
    assert window == shape, f"{name!r} says {answer.window_order}: a window is {window}, expected {shape}"
    taken = 0
    for field in layout.fields:
        mine = field_bytes(field, 1)
        assert mine.bit_count() == payload(field), f"elements of {field.name!r} share bytes: {field}"
        assert not mine & taken, f"{field.name!r} shares bytes with another field of a slot: {field}"
        assert field.base % answer.align == 0, f"{field.name!r} begins at byte {field.base}, asked for {answer.align}"
        taken |= mine
    least, most = (layout.fields[0].page_stride * n + layout.origin for n in (1, 2))
    first, end = (taken & -taken).bit_length() - 1, taken.bit_length()
    assert least <= first < end <= most, f"slot 1 takes bytes {first} to {end}, its page is {least} to {most}"


@check("conv_layout", needs=("layout.slots", "memory.translate"), cases=cases, features=FEATURES)
def check_ids_and_views_reach_the_addresses(target: Target, case: SlotCase) -> None:
    """The kernel id of a slot, in the view of each form in use, reaches the byte that the affine map gives."""
    wrong = reaches(target, _pool(target, case), "conv", case.seed)
    assert not wrong, wrong


@check("conv_layout", needs=("conv.read_state",), cases=cases, features=FEATURES)
def check_zero_bytes_are_an_empty_slot(target: Target, case: SlotCase) -> None:
    """A slot of zero bytes is valid and empty: its live rows, in every layer, are zeros."""
    spec, pool = case.spec, _pool(target, case)
    slots = pool["conv"].kernel_ids(pool.alloc(3, "conv").page_ids())
    found = target.binding().conv(pool["conv"]).read_state(slots)
    shape = (len(spec.layers), 3, spec.width - 1, spec.channels)
    assert tuple(found.shape) == shape, f"read_state gave {tuple(found.shape)}, expected {shape}"
    assert found.dtype == getattr(torch, spec.dtype), f"read_state gave {found.dtype} of a window of {spec.dtype}"
    values = found.float().cpu().flatten().tolist()
    odd = [value for value in values if value != 0]
    assert not odd, f"{len(odd)} of {len(values)} values of empty slots are not zero, the first is {odd[0]}"
    image = target.image(pool)
    different = first_difference(pool, bytes(len(image)), image)
    assert not different, f"reading the state of empty slots changed bytes of the pool: {different}"


@check(
    "conv_layout",
    needs=("conv.prepare", "conv.prefill", "conv.commit"),
    cases=partial(cases, many=False),
    features=("one layer", "several layers", "drafts", "no drafts", "width 2", "width 8"),
)
def check_live_rows_lie_where_the_layout_says(target: Target, case: SlotCase) -> None:
    """After a step and its commit, live rows and the int32 cursor lie where order and protocol of the layout say."""
    spec, pool = case.spec, _pool(target, case)
    sub, conv = pool["conv"], target.binding().conv(pool["conv"])
    pages = pool.alloc(2, "conv")
    slots = sub.kernel_ids(pages.page_ids())[:1]
    generator = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, spec.dtype)
    inputs = {n: torch.randint(-9, 10, (case.tokens, spec.channels), generator=generator) for n in spec.layers}
    start = target.on_device(torch.tensor([0, case.tokens]))
    for layer, x in inputs.items():
        conv.prepare(layer, target.on_device(torch.ones(spec.channels, spec.width)))
        conv.prefill(layer, target.on_device(x.to(dtype)), start, slots)
    conv.commit(slots, target.on_device(torch.ones(1, dtype=torch.int32)))
    image = target.image(pool)
    how, page = sub.layout.conv, sub.member.table[pages.ids[0]]
    assert how is not None
    rows, history = spec.width + spec.verify_tokens - 2, spec.width - 1
    fields = {field.name: field for field in sub.layout.fields}
    at = address(fields["cursor"], spec.layers[0], page, 0, (0,))
    cursor = int.from_bytes(image[at : at + 4], "little", signed=True)
    places = Places(how.protocol, history + 1, rows)
    wanted_cursor = places.after(0, 1)
    assert cursor == wanted_cursor, (
        f"{how.protocol}: after a commit of 1 the int32 cursor is {cursor}, not {wanted_cursor}"
    )
    for layer, x in inputs.items():
        values = [[0] * spec.channels] * history + x.tolist()
        for n, row in enumerate(values[-history:]):
            where = places.live(cursor)[n]
            for channel, value in enumerate(row):
                element = (where, channel) if how.window_order == "rows_first" else (channel, where)
                byte = address(fields["conv"], layer, page, 0, element)
                raw = encoded(value, spec.dtype)
                found = bytes(image[byte : byte + len(raw)])
                assert found == raw, (
                    f"{how.protocol}, {how.window_order}: live row {n} of layer {layer}, channel {channel}, belongs in "
                    f"row {where}, byte {byte}: expected {raw.hex()} ({value}), found {found.hex()}"
                )
    start = sub.layout.origin + page * sub.layout.page_bytes
    image[start : start + sub.layout.page_bytes] = bytes(sub.layout.page_bytes)
    different = first_difference(pool, bytes(len(image)), image)
    assert not different, f"outside of slot {page}: {different}"
