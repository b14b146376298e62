"""Rows of unequal or odd width: the waste is what arithmetic says, and nothing is refused for it."""

from fractions import Fraction
from math import lcm

import pytest
import torch

from layout import oracle
from layout.cases import attention, token_case
from statehal.layout import FormKind, PoolLayout, page_major, token_major
from statehal.pool import PoolPlan, plan
from statehal.pool.views import field_view
from statehal.spec import Attention, Spec

UNEQUAL = Attention("full", tuple(range(5)), 4, 192, "bfloat16", v_head_dim=128)


@pytest.mark.parametrize(("page_size", "percent"), [(16, 0.5), (1, 17), (128, 0), (3, 3.8)])
def test_waste_of_192_beside_128(page_size: int, percent: float) -> None:
    """Five layers; the page is padded to a whole number of steps of both rows."""
    planned = plan([UNEQUAL], tokens=10_000, page_size=page_size).subpools["full"]
    payload = 5 * page_size * 4 * (192 + 128) * 2
    step = lcm(4 * 192 * 2, 4 * 128 * 2)
    page = -(-payload // step) * step
    assert planned.layout.page_bytes == page
    assert Fraction(planned.waste).limit_denominator(10**6) == 1 - Fraction(payload, page)
    assert planned.waste * 100 == pytest.approx(percent, abs=0.5)
    assert [form.ratio for form in planned.layout.address_forms] == [page // (4 * 192 * 2), page // (4 * 128 * 2)]


def test_one_shared_table_by_a_token_major_entry() -> None:
    planned = plan([UNEQUAL], tokens=10_000, page_size=1, layouts=token_major).subpools["full"]
    assert planned.waste == 0
    assert len(planned.layout.address_forms) == 1


@pytest.mark.parametrize("page_size", [1, 16])
def test_v_is_read_with_its_own_stride(page_size: int) -> None:
    """head_dim 192 and v_head_dim 128: what is written to one token's V is read from there and nowhere else."""
    layout = plan([UNEQUAL], tokens=40, page_size=page_size).subpools["full"].layout
    buffer = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    ratio = layout.page_bytes // (4 * 128 * 2)
    page = min(2, layout.num_pages - 1)
    row = page * ratio + page_size - 1
    field_view(buffer, layout, "v", "row", 3)[row] = 1.0
    start = 3 * page_size * 4 * (192 + 128) * 2 + page_size * 4 * 192 * 2 + page * layout.page_bytes
    start += (page_size - 1) * 4 * 128 * 2
    assert buffer.nonzero().flatten().tolist() == list(range(start, start + 4 * 128 * 2))
    assert bool((field_view(buffer, layout, "v", "row", 3)[row] == 1).all())


@pytest.mark.parametrize("kind", ["row", "block", "page"])
@pytest.mark.parametrize("make", [page_major, token_major])
def test_a_row_of_8_bytes_works(kind: FormKind, make: object) -> None:
    spec = Attention("full", (0, 1, 2), 1, 4, "bfloat16")
    if make is token_major and kind == "block":
        return  # an entry has no blocks, see test_forms
    build = token_major if make is token_major else page_major
    layout = plan([spec], tokens=64, layouts=lambda one, size: build(one, size, forms=(kind,))).subpools["full"].layout
    assert layout.field("k").row_bytes == 8
    walked = token_case(attention((0, 1, 2), 1, 4), build.__name__, 16, num_pages=layout.num_pages)
    buffer = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    token = 2 * 16 + 5
    view = field_view(buffer, layout, "v", kind, 1)
    at = oracle.kernel_id(kind, 2, 5, 16, layout.page_bytes, walked.steps["v"], walked.row("v"))
    target = view[at] if kind == "row" else view[at // 16, at % 16]
    target.view(torch.uint8).fill_(255)
    start = walked.address("v", 1, 2, 5, (0, 0))
    assert layout.field("v").address(1, token) == start
    assert buffer.nonzero().flatten().tolist() == list(range(start, start + 8))


@pytest.mark.parametrize("align", [16, 64, 512])
def test_alignment_survives_widening(align: int) -> None:
    """Where a field of page 0 starts at a multiple of ``align``, so does that of every page of every sub-pool."""
    specs = [Attention("full", (0, 1), 1, 5, "int8"), Attention("swa", tuple(range(2, 11)), 1, 5, "int8", window=8)]

    def aligned(spec: Spec, page_size: int) -> PoolLayout:
        return page_major(spec, page_size, forms=("page",), align=align)

    planned: PoolPlan = plan(specs, total_bytes=10**6, page_size=3, layouts=aligned, waste_limit=0.12)
    # without alignment the smallest slab is a page of swa, 18 * align bytes, a quarter of which is 4.5 * align
    strides = {sub.layout.page_bytes for sub in planned.subpools.values()}
    assert all(stride % align == 0 for stride in strides), strides
    for sub in planned.subpools.values():
        for field in sub.layout.fields:
            for page in range(3):
                assert field.address(sub.spec.layers[1], 3 * page) % align == 0
