"""Objects are the model's bytes in canonical order, whatever pool they come from; and back, and no byte beside them."""

import random
from collections.abc import Callable

import pytest
import torch

from portability.images import (
    HAL,
    fill_tokens,
    make_pool,
    payload,
    physical,
    raw,
    scattered,
    slot_bytes,
    token_bytes,
)
from portability.models import BY_NAME, CONV_LAYOUTS, MODELS, Model, layouts_of
from statehal import bind
from statehal.errors import ArgumentError, StepError
from statehal.pool import SubPool
from statehal.portability import CanonicalState, Conversion, Grouping, RankSubPool, Topology

TOKENS = 12
TOKEN_CASES = [
    pytest.param(model, layout, size, id=f"{model} {layout} {size}")
    for model in MODELS
    if model.spec.kind == "tokens"
    for size in (3, 4, 16)
    for layout in layouts_of(model, size)
]
DRAFTS = {"gdn": 3, "ssm": 2, "nemo": 1}
SLOT_CASES = [
    pytest.param(BY_NAME[name], layout, cursor, id=f"{name} {layout} {cursor}")
    for name in ("gdn", "ssm", "nemo")
    for layout, cursors in (
        ("ring", range(5)),
        ("offset, channels first", range(3)),
        ("rollback, padded", [0]),
        ("ring, channels first, padded", [2]),
    )
    for cursor in cursors
    if cursor < {"gdn": 5, "ssm": 3, "nemo": 3}[name] and not (layout.startswith("offset") and cursor >= DRAFTS[name])
]


def noise(count: int, seed: int = 0) -> torch.Tensor:
    return torch.frombuffer(bytearray(random.Random(seed).randbytes(count)), dtype=torch.uint8)


def state_of(
    sub: SubPool, model: Model, topology: Topology | None = None, rank: int = 0, **sizes: int
) -> CanonicalState:
    grouping = Grouping.of([model.spec], object_tokens=TOKENS, **sizes)
    held = RankSubPool(sub, [model.spec], topology, rank, grouping)
    assert held.verdict.certified, held.verdict
    return CanonicalState(HAL, held)


def found_parts(state: CanonicalState, buffer: torch.Tensor) -> dict[str, bytes]:
    parts = zip(state.object.parts, state.object.offsets, strict=True)
    return {part.id: raw(buffer[at : at + part.nbytes]) for part, at in parts}


def wanted_parts(state: CanonicalState, model: Model, first: int = 0, point: int = 0) -> dict[str, bytes]:
    return {part.id: payload(model, part.as_dict(), first, TOKENS, point) for part in state.object.parts}


@pytest.mark.parametrize(("model", "layout", "page_size"), TOKEN_CASES)
def test_spans_are_the_bytes_of_their_tokens(model: Model, layout: str, page_size: int) -> None:
    pool = make_pool([model.spec], layout, page_size, tokens=120)
    sub = pool[model.spec.name]
    sub.buffer.copy_(noise(sub.buffer.numel()))
    pages = scattered(pool, sub.name, 2 * TOKENS + 5)
    fill_tokens(sub, model, pages, 2 * TOKENS)
    before = raw(sub.buffer)
    state = state_of(sub, model)
    for first in (0, TOKENS):
        assert found_parts(state, state.gather(pages, first)) == wanted_parts(state, model, first)
    assert raw(sub.buffer) == before


@pytest.mark.parametrize(("model", "layout", "page_size"), [case for case in TOKEN_CASES if case.values[2] != 4])
def test_restoring_writes_these_tokens_and_zeroes_the_rest_of_their_pages(
    model: Model, layout: str, page_size: int
) -> None:
    pool = make_pool([model.spec], layout, page_size, tokens=120)
    sub = pool[model.spec.name]
    pages = scattered(pool, sub.name, 3 * TOKENS + 1)
    sub.buffer.copy_(noise(sub.buffer.numel(), seed=1))
    state = state_of(sub, model)
    objects = []
    for first in (TOKENS, 2 * TOKENS):
        buffer = torch.full((state.object.nbytes,), 0xEE, dtype=torch.uint8)
        for part, at in zip(state.object.parts, state.object.offsets, strict=True):
            wanted = payload(model, part.as_dict(), first, TOKENS)
            buffer[at : at + part.nbytes] = torch.frombuffer(bytearray(wanted), dtype=torch.uint8)
        objects.append(buffer)
    expected = bytearray(raw(sub.buffer))
    start, stop = TOKENS - TOKENS % page_size, 3 * TOKENS + -3 * TOKENS % page_size
    for token in range(start, stop):
        covered = TOKENS <= token < 3 * TOKENS
        for at, value in token_bytes(sub, model, pages, [token], Topology(), 0):
            expected[at] = value if covered else 0
    state.restore(pages, objects, TOKENS)
    assert raw(sub.buffer) == bytes(expected)


def test_a_second_call_keeps_what_the_first_one_wrote_into_their_common_page() -> None:
    model = BY_NAME["full"]
    pool = make_pool([model.spec], "NHD", 16, tokens=64)
    sub = pool["full"]
    pages = scattered(pool, "full", 2 * TOKENS)
    fill_tokens(sub, model, pages, 2 * TOKENS)
    state = state_of(sub, model)
    objects = [state.gather(pages, first) for first in (0, TOKENS)]
    sub.buffer.copy_(noise(sub.buffer.numel()))
    state.restore(pages, objects[:1])
    state.restore(pages, objects[1:], TOKENS, resume=True)
    assert [found_parts(state, state.gather(pages, first)) for first in (0, TOKENS)] == [
        wanted_parts(state, model, first) for first in (0, TOKENS)
    ]


def fill_slot(sub: SubPool, model: Model, slot: int, cursor: int) -> None:
    image = bytearray(raw(sub.buffer))
    for at, value in slot_bytes(sub, model, slot, cursor, Topology(), 0):
        image[at] = value
    sub.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
    sub.view("cursor", model.spec.layers[0], "page")[slot] = cursor


@pytest.mark.parametrize(("model", "layout", "cursor"), SLOT_CASES)
def test_points_are_the_live_rows_oldest_first(model: Model, layout: str, cursor: int) -> None:
    pool = make_pool([model.spec], layout, 16, tokens=1)
    sub = pool[model.spec.name]
    slots = pool.alloc(3, sub.name)
    pool.flush()
    sub.buffer.copy_(noise(sub.buffer.numel()))
    fill_slot(sub, model, physical(sub, slots)[1], cursor)
    state = state_of(sub, model)
    assert found_parts(state, state.gather(slots[1])) == wanted_parts(state, model)


@pytest.mark.parametrize("model", [BY_NAME[name] for name in DRAFTS], ids=str)
@pytest.mark.parametrize("layout", CONV_LAYOUTS)
def test_a_restored_slot_holds_its_live_rows_and_zeros(model: Model, layout: str) -> None:
    pool = make_pool([model.spec], layout, 16, tokens=1)
    sub = pool[model.spec.name]
    slots = pool.alloc(3, sub.name)
    pool.flush()
    sub.buffer.copy_(noise(sub.buffer.numel()))
    state = state_of(sub, model)
    buffer = torch.full((state.object.nbytes,), 0xEE, dtype=torch.uint8)
    for part, at in zip(state.object.parts, state.object.offsets, strict=True):
        wanted = payload(model, part.as_dict(), 0, TOKENS)
        buffer[at : at + part.nbytes] = torch.frombuffer(bytearray(wanted), dtype=torch.uint8)
    expected, number = bytearray(raw(sub.buffer)), physical(sub, slots)[1]
    stride, origin = sub.layout.fields[0].page_stride, sub.layout.origin
    expected[origin + number * stride : origin + (number + 1) * stride] = bytes(stride)
    for at, value in slot_bytes(sub, model, number, 0, Topology(), 0):
        expected[at] = value
    state.restore(slots[1], [buffer])
    assert raw(sub.buffer) == bytes(expected)


def test_a_point_reads_what_the_backend_calls_live() -> None:
    """After decodes and a verify whose drafts were partly rejected, under every protocol."""
    model = BY_NAME["gdn"]
    for layout in CONV_LAYOUTS:
        pool = make_pool([model.spec], layout, 16, tokens=1)
        sub, spec = pool["gdn"], model.spec
        conv = HAL.conv(sub)
        slots = pool.alloc(1, "gdn")
        ids = sub.kernel_ids(slots.page_ids())
        for layer in spec.layers:
            conv.prepare(layer, torch.ones(32, 4).bfloat16())
        draws = torch.Generator().manual_seed(3)
        for kept in (1, 2, 3, 1):
            for layer in spec.layers:
                conv.verify(layer, torch.randn(3, 32, generator=draws).bfloat16(), ids)
            conv.commit(ids, torch.tensor([kept]))
        live = conv.read_state(ids)
        state = state_of(sub, model, head_groups=1)
        parts = found_parts(state, state.gather(slots))
        for number, layer in enumerate(spec.layers):
            rows = live[number, 0]
            wanted = b""
            for start, heads in ((0, 4), (8, 4), (16, 8)):
                for head in range(heads):
                    wanted += raw(
                        rows[:, start + 2 * head : start + 2 * head + 2].contiguous().view(torch.uint8).flatten()
                    )
            got = parts[f"layers{number}-{number + 1}.heads0of1"]
            assert got[: len(wanted)] == wanted, (layout, layer)


def test_a_gather_takes_its_own_buffer_and_refuses_others() -> None:
    model = BY_NAME["full"]
    pool = make_pool([model.spec], "HND", 4, tokens=64)
    pages = pool.alloc(30)
    state = state_of(pool["full"], model)
    out = torch.empty(state.object.nbytes, dtype=torch.uint8)
    assert state.gather(pages, out=out) is out
    size = state.object.nbytes
    for bad in (out[1:], out.view(torch.int8), torch.empty(size * 2, dtype=torch.uint8)[::2], [0]):
        with pytest.raises(ArgumentError, match=rf"buffer of 'full' is .*: expected uint8 \[{size}\] on cpu, dense"):
            state.gather(pages, out=bad)  # type: ignore[arg-type]
    unaligned = torch.empty(size + 1, dtype=torch.uint8)[1:]
    with pytest.raises(ArgumentError, match=r"at a multiple of 8 bytes"):
        state.restore(pages, [unaligned])


def test_tokens_that_are_not_held_are_refused() -> None:
    model = BY_NAME["swa"]
    pool = make_pool([model.spec], "NHD", 4, tokens=64)
    pages = pool.alloc(30)
    state = state_of(pool["swa"], model)
    with pytest.raises(ArgumentError, match=r"^tokens 24 to 36 of 'swa': the handle holds 30 tokens$"):
        state.gather(pages, 24)
    with pytest.raises(ArgumentError, match=r"^first_token=6 of 'swa': expected a multiple of 12$"):
        state.gather(pages, 6)
    pool.evict("swa", pages, before=16)
    with pytest.raises(ArgumentError, match=r"^tokens 12 to 24 of 'swa': the page of token 12 was evicted or freed$"):
        state.gather(pages, 12)
    before = raw(pool.buffer)
    good = torch.zeros(state.object.nbytes, dtype=torch.uint8)
    with pytest.raises(ArgumentError, match=r"^tokens 12 to 24 of 'swa': the page of token 12 was evicted or freed$"):
        state.restore(pages, [good], 12)
    assert raw(pool.buffer) == before
    pool.free(pages)
    with pytest.raises(ArgumentError, match=r"was evicted or freed"):
        state.gather(pages, 0)


def test_a_point_is_one_slot() -> None:
    model = BY_NAME["ssm"]
    pool = make_pool([model.spec], "ring", 16, tokens=1)
    slots = pool.alloc(2, "ssm")
    state = state_of(pool["ssm"], model)
    with pytest.raises(ArgumentError, match=r"^a point of 'ssm' is one slot: the handle has 2$"):
        state.gather(slots)
    with pytest.raises(ArgumentError, match=r"^restore of 'ssm': 0 objects for one slot$"):
        state.restore(slots[0], [])


def test_with_checking_a_slot_that_a_copy_reads_is_not_written_over() -> None:
    hal = bind("cpu", "reference", check=True)
    model = BY_NAME["gdn"]
    pool = make_pool([model.spec], "ring", 16, tokens=1, hal=hal)
    slot, other = pool.alloc(1, "gdn"), pool.alloc(1, "gdn")
    state = state_of(pool["gdn"], model)
    held = RankSubPool(pool["gdn"], [model.spec], None, 0, Grouping.of([model.spec], object_tokens=TOKENS))
    conversion = Conversion(hal, held, held)
    state.restore(slot, [noise(state.object.nbytes)])
    pin, before = pool.pin(slot), raw(pool.buffer)
    calls: list[tuple[Callable[[], None], str]] = [
        (lambda: state.restore(slot, [noise(state.object.nbytes, 1)]), "restore of"),
        (lambda: conversion.copy(other, slot), "conversion to"),
    ]
    for call, where in calls:
        with pytest.raises(ArgumentError, match=rf"^{where} 'gdn': slot \d+ is pinned, because a copy reads or"):
            call()
    assert raw(pool.buffer) == before
    conversion.copy(slot, other)
    pool.unpin(pin)
    conversion.copy(other, slot)
    state.restore(slot, [noise(state.object.nbytes, 1)])


def test_a_slot_between_a_step_and_its_commit_is_no_point() -> None:
    hal = bind("cpu", "reference", check=True)
    model = BY_NAME["gdn"]
    pool = make_pool([model.spec], "ring", 16, tokens=1, hal=hal)
    slots = pool.alloc(1, "gdn")
    ids, conv = pool["gdn"].kernel_ids(slots.page_ids()), hal.conv(pool["gdn"])
    state = state_of(pool["gdn"], model)
    for layer in model.spec.layers:
        conv.prepare(layer, torch.ones(32, 4).bfloat16())
        conv.verify(layer, torch.ones(3, 32).bfloat16(), ids)
    with pytest.raises(StepError, match=r"gather of 'gdn': .* slot \d+, whose step is not committed"):
        state.gather(slots)
    conv.commit(ids, torch.tensor([2]))
    restored = state.gather(slots)
    parts = found_parts(state, restored)
    for layer in model.spec.layers:
        conv.verify(layer, torch.ones(3, 32).bfloat16(), ids)
    state.restore(slots, [restored])  # overwrites the step that was given up
    assert found_parts(state, state.gather(slots)) == parts


@pytest.mark.parametrize(
    ("name", "layout", "runs"),
    [
        ("full", "NHD", [32]),
        ("full", "HND", [128]),
        ("full", "packed", [32]),
        ("fp8", "HND", [256, 128, 4]),
        ("gdn", "ring", [4, 4, 24, 20]),
    ],
)
def test_a_plan_is_a_few_moves_whatever_the_layers_and_heads(name: str, layout: str, runs: list[int]) -> None:
    model = BY_NAME[name]
    pool = make_pool([model.spec], layout, 4, tokens=64)
    assert [move.run for move in state_of(pool[name], model).plan] == runs
