"""From virtual ids through a real pool to bytes: where a plan's layouts say, and in no other sub-pool's pages."""

from typing import Any

import pytest
import torch

from layout.cases import Kept, attention, latent, token_case
from layout.oracle import elements
from statehal.layout import PoolLayout, layer_major, nz, page_major, token_major
from statehal.pool import StatePool, plan
from statehal.reference.memory_ops import ReferenceMemoryOps
from statehal.spec import Spec

FULL = attention((0, 3), 3, 16)
MLA = latent((1, 2), 12, 4, indexer=5)


def layout(make: Any, order: str | None, spec: Spec, page_size: int) -> PoolLayout:
    options = {"order": order} if order else {}
    forms = ("page", "row") if spec.name == "full" else ("row",)
    made: PoolLayout = make(spec, page_size, forms=forms, **options)
    return made


def walk(kept: Kept, make: Any, order: str | None, page_size: int, planned: PoolLayout, offset: int) -> Any:
    """The oracle over the pages that the plan made."""
    case = token_case(kept, make.__name__, page_size, order=order or "NHD", num_pages=planned.num_pages, align=1)
    if planned.order == "layer":
        return lambda *place: offset + case.address(*place)
    return lambda f, layer, page, slot, e: offset + page * planned.page_bytes + case.address(f, layer, 0, slot, e)


@pytest.mark.parametrize(
    ("make", "order"),
    [(page_major, "NHD"), (page_major, "HND"), (token_major, None), (layer_major, "NHD"), (layer_major, "HND")],
)
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_tokens_land_where_the_walk_says(make: Any, order: str | None, page_size: int) -> None:
    budgets = {"full": 40_000, "mla": 8_000} if make is layer_major else None
    made = plan(
        [FULL.spec, MLA.spec],
        total_bytes=70_000,
        page_size=page_size,
        layouts=lambda spec, size: layout(make, order, spec, size),
        waste_limit=0.3,
        budgets=budgets,
    )
    pool = StatePool(made, "cpu", ReferenceMemoryOps())
    pool.alloc(2 * page_size, "mla")
    pages = pool.alloc(2 * page_size + 1)
    token = 2 * page_size  # the first token of the third page
    for kept in (FULL, MLA):
        sub = pool[kept.spec.name]
        address = walk(kept, make, order, page_size, sub.layout, sub.plan.region.offset)
        ids = sub.kernel_ids(pages.token_ids(token))
        physical = int(sub.physical_ids(pages.token_ids(token)).tensor)
        assert physical >= page_size  # page 0 is the sink
        for row in kept.rows:
            for layer, users in enumerate(kept.ids[row.name]):
                places = sorted(
                    address(row.name, layer, physical // page_size, physical % page_size, element) + byte
                    for element in elements(row.shape)
                    for byte in range(row.itemsize)
                )
                for kind in sub.layout.kinds(row.name):
                    pool.buffer.zero_()
                    where = int(ids.of(sub.layout.form(row.name, kind)))
                    view = sub.view(row.name, users[0], kind)
                    target = view[where] if kind == "row" else view[where // page_size, where % page_size]
                    filled = torch.full((row.bytes(),), 0x41, dtype=torch.uint8).view(view.dtype)
                    target.copy_(filled.reshape(target.shape))
                    assert pool.buffer.nonzero().flatten().tolist() == places


def test_nz_pages_of_a_plan_stay_aligned() -> None:
    """NZ at page size 3: a page is no multiple of 512 bytes by itself."""
    spec = attention((0, 1, 2), 1, 16).spec
    made = plan([spec], tokens=20, page_size=3, layouts=lambda one, size: nz(one, size, forms=("page",)))
    field = made.subpools["full"].layout.field("v")
    assert {field.address(2, 3 * page) % 512 for page in range(5)} == {0}
