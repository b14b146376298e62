"""Padding, the sink, unmapped ids and ids past the view: skipped, whatever their rows hold."""

import pytest
import torch

import statehal
from reference.kv_oracle import LAYERS, LAYOUTS, Rig, bits, raw, rig
from statehal.ids import KernelIds

PAST = 10**6


def with_ids(made: Rig, positions: list[int], value: int) -> KernelIds:
    """The rig's ids with ``value`` at some positions, in every form."""
    tensors = [tensor.clone() for tensor in made.ids.tensors]
    for tensor in tensors:
        tensor[positions] = value
    return KernelIds(made.ids.space, tensors, made.ids.epoch)


def rows(made: Rig, dtype: torch.dtype, nan_at: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    count, facts = len(made.physical), made.facts
    k = torch.randn(count, facts.heads, facts.widths[0], generator=torch.Generator().manual_seed(3)).to(dtype)
    v = torch.randn(count, facts.heads, facts.widths[1], generator=torch.Generator().manual_seed(4)).to(dtype)
    k[nan_at], v[nan_at] = float("nan"), float("nan")
    return k, v


@pytest.mark.parametrize("where", [[0], [2], [4], [0, 2, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("value", [-1, -7, "last of the sink", 0, PAST, "first past the view"])
@pytest.mark.parametrize("name", ["page-major NHD row", "page-major HND block", "layer-major NHD row", "nz page"])
def test_a_padding_row_stores_nothing_anywhere(name: str, value: int | str, where: list[int]) -> None:
    made = rig(name, 3, "bfloat16")
    ids = with_ids(made, where, value if isinstance(value, int) else 2)
    if value == "first past the view":
        for field, form in zip("kv", made.sub.forms * (2 // len(made.sub.forms)), strict=True):
            tensor = ids.of(form)
            view = made.sub.view(field, LAYERS[0], form.kind)
            tensor[where] = view.shape[0] * (1 if form.kind == "row" else 3)
    k, v = rows(made, torch.bfloat16, where)
    expected = made.image()
    for row, token in enumerate(made.physical):
        if row not in where:
            made.put(expected, 0, 2, token, k[row])
            made.put(expected, 1, 2, token, v[row])
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[2], ids, k, v)
    assert made.image() == expected


@pytest.mark.parametrize("page_size", [1, 3])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_last_row_of_the_view_can_be_written(name: str, page_size: int) -> None:
    made = rig(name, page_size, "bfloat16", tokens=1)
    last = made.facts.num_pages * page_size - 1
    page, place = divmod(last, page_size)
    tensors = [torch.tensor([page * form.multiplier("tokens", page_size) + place]) for form in made.sub.forms]
    ids = made.sub.space("kernel").assume(*tensors)
    made.physical = [last]
    k, v = rows(made, torch.bfloat16, [])
    expected = made.image()
    made.put(expected, 0, 0, last, k[0])
    made.put(expected, 1, 0, last, v[0])
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[0], ids, k, v)
    assert made.image() == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_thousand_padded_steps_leave_the_sink_zero(name: str) -> None:
    """Decode steps of a padded batch whose padding is -1, the sink, an unmapped id, and a freed page's id."""
    made = rig(name, 3, "bfloat16")
    live, freed = (made.pool.alloc(1, "kv") for _ in range(2))
    (kept,), (gone,) = (pages.token_ids().tensor.tolist() for pages in (live, freed))
    made.pool.free(freed)
    space = made.sub.space("virtual")
    writer = statehal.bind("cpu", "reference").kv(made.sub)
    virtual = space.assume(torch.tensor([-1, kept, 0, gone, PAST]))
    k, v = rows(made, torch.bfloat16, [0, 2, 3, 4])
    ids = made.sub.kernel_ids(virtual)
    physical = made.sub.physical_ids(virtual).tensor.tolist()[1]
    expected = made.image()
    for index in range(len(LAYERS)):
        made.put(expected, 0, index, physical, k[1])
        made.put(expected, 1, index, physical, v[1])
    for step in range(1000):
        writer.write(LAYERS[step % 3], made.sub.kernel_ids(virtual, out=ids), k, v)
    assert made.image() == expected
    for index in range(len(LAYERS)):
        for place in range(3):
            for field in (0, 1):
                for at in made.elements(field, index, place):
                    assert expected[at : at + 2] == b"\0\0"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2fnuz", "int8", "int64"])
def test_padding_of_every_kind_of_dtype(dtype: str) -> None:
    made = rig("page-major NHD row", 3, dtype)
    ids = with_ids(made, [1, 3], -1)
    shape = (5, made.facts.heads)
    k = bits(*shape, made.facts.widths[0], dtype=getattr(torch, dtype), seed=5)
    v = bits(*shape, made.facts.widths[1], dtype=getattr(torch, dtype), seed=6)
    expected = made.image()
    for row in (0, 2, 4):
        made.put(expected, 0, 0, made.physical[row], k[row])
        made.put(expected, 1, 0, made.physical[row], v[row])
    statehal.bind("cpu", "reference").kv(made.sub).write(LAYERS[0], ids, k, v)
    assert made.image() == expected


def test_an_evicted_page_takes_no_more_writes() -> None:
    hal = statehal.bind("cpu", "reference")
    specs = [statehal.Attention(name, (n,), 1, 4, "float32", window=4) for n, name in enumerate(("full", "swa"))]
    pool = hal.allocate(hal.plan(specs, tokens=32, page_size=4))
    pages = pool.alloc(12)
    assert pool.evict("swa", pages, 8) == 2
    ids = pool["swa"].kernel_ids(pages.token_ids())
    before = bytearray(raw(pool.buffer))
    k, v = torch.ones(12, 1, 4), torch.full((12, 1, 4), 2.0)
    k[:8] = v[:8] = float("nan")
    hal.kv(pool["swa"]).write(1, ids, k, v)
    changed = [n for n, (a, b) in enumerate(zip(before, raw(pool.buffer), strict=True)) if a != b]
    assert len(changed) <= 4 * 2 * 16
    assert not torch.isnan(pool.buffer.view(torch.float32)).any()
    assert pool.buffer.view(torch.float32).sum() == 4 * 4 * (1 + 2)
    pool.check()
