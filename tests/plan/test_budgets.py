"""Budgets in bytes and in tokens: what is left over, what is held, and what is refused."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statehal.errors import LayoutError, PlanError, PoolExhausted
from statehal.layout import PoolLayout, conv_window, layer_major, page_major, token_major
from statehal.pool import PoolPlan, StatePool, plan
from statehal.reference.memory_ops import ReferenceMemoryOps
from statehal.spec import Attention, ConvRecurrent, Latent, Spec

FULL = Attention("full", (0, 1), 2, 4, "bfloat16")  # 64 bytes a token
SWA = Attention("swa", (2, 3, 4), 2, 4, "bfloat16", window=8)  # 96 bytes a token
MLA = Latent("mla", (5,), 12, 4, "bfloat16")  # 32 bytes a token
CONV = ConvRecurrent("conv", (6, 7), 24, 4, "bfloat16", state=(2, 4, 4))


def layer_wise(spec: Spec, page_size: int) -> PoolLayout:
    return conv_window(spec) if spec.kind == "slots" else layer_major(spec, page_size)


def mixed(spec: Spec, page_size: int) -> PoolLayout:
    """Layer-major for ``swa`` alone."""
    return layer_major(spec, page_size) if spec.name == "swa" else page_major(spec, page_size)


def pool_of(made: PoolPlan) -> StatePool:
    return StatePool(made, "cpu", ReferenceMemoryOps())


@pytest.mark.parametrize("total", [4096 + 1, 5 * 1024 - 1, 6145, 99_999, 1_000_001])
@pytest.mark.parametrize("specs", [(FULL,), (FULL, SWA), (FULL, SWA, CONV)], ids=len)
def test_an_odd_budget_is_rounded_down_and_reported(specs: tuple[Spec, ...], total: int) -> None:
    made = plan(specs, total_bytes=total, page_size=4, waste_limit=0.3)
    assert made.requested_bytes == total
    assert made.total_bytes + made.unused_bytes == total
    assert made.total_bytes <= total
    (region,) = made.regions
    unit = region.slab_bytes if region.shared else made.subpools["full"].layout.page_bytes
    assert made.total_bytes % unit == 0
    assert 0 <= made.unused_bytes < unit
    pool = pool_of(made)
    assert made.total_bytes <= pool.buffer.numel() < made.total_bytes + 16
    for sub in pool.subpools.values():
        for field in sub.layout.fields:
            assert sub.view(field.name, sub.spec.layers[0]).numel()


MODELS = [(FULL,), (FULL, SWA), (FULL, MLA), (MLA, CONV), (CONV,), (FULL, SWA, CONV), (FULL, SWA, MLA, CONV)]


@given(
    specs=st.sampled_from(MODELS),
    tokens=st.integers(1, 400),
    requests=st.integers(1, 5),
    page_size=st.sampled_from([1, 3, 4, 16]),
    layouts=st.sampled_from([page_major, token_major, layer_major]),
)
@settings(max_examples=60, deadline=None)
def test_a_plan_of_tokens_holds_them_and_no_slab_more(
    specs: tuple[Spec, ...], tokens: int, requests: int, page_size: int, layouts: Any
) -> None:
    """By allocation: all tokens in every token sub-pool, a slot a request in every slot sub-pool, at the same time."""
    made = plan(
        specs,
        tokens=tokens,
        requests=requests,
        page_size=page_size,
        layouts=lambda spec, size: conv_window(spec) if spec.kind == "slots" else layouts(spec, size),
        waste_limit=0.4,
    )
    assert made.unused_bytes == 0
    pool = pool_of(made)
    token_pools = [spec.name for spec in specs if spec.kind == "tokens"]
    if token_pools:
        pool.alloc(tokens, token_pools)
    for spec in specs:
        if spec.kind == "slots":
            pool.alloc(requests, spec.name)
    for name, sub in made.subpools.items():
        spare = pool.available(name).pages
        assert spare < sub.pages_per_slab if sub.region.shared else spare == 0
    pool.check()


def test_a_region_that_nobody_shares_is_a_sub_pools_own() -> None:
    made = plan([FULL], total_bytes=100_000, page_size=4)
    (region,) = made.regions
    assert (region.shared, region.num_slabs) == (False, 1)
    assert made.subpools["full"].max_pages == 100_000 // 256 - 1
    assert len(pool_of(made).alloc(made.subpools["full"].max_pages * 4)) == made.subpools["full"].max_pages


def test_layer_major_sub_pools_have_the_bytes_of_their_budgets() -> None:
    made = plan(
        [FULL, SWA], total_bytes=100_000, page_size=4, layouts=layer_wise, budgets={"full": 40_000, "swa": 50_000}
    )
    full, swa = made.subpools["full"], made.subpools["swa"]
    assert full.region.total_bytes == 40_000 // 256 * 256
    assert swa.region.total_bytes == 50_000 // 384 * 384
    assert swa.region.offset >= full.region.offset + full.region.total_bytes
    assert swa.layout.field("k").base == swa.region.offset
    assert made.total_bytes <= 100_000


def test_layer_major_beside_shared_slabs() -> None:
    made = plan([FULL, SWA, MLA], total_bytes=100_000, page_size=4, layouts=mixed, budgets={"swa": 30_000})
    assert [region.members for region in made.regions] == [("full", "mla"), ("swa",)]
    slabs, own = made.regions
    assert slabs.total_bytes <= 70_000
    assert own.offset >= slabs.total_bytes
    assert own.total_bytes == 30_000 // 384 * 384
    assert made.total_bytes <= 100_000
    pool = pool_of(made)
    pool.alloc(8, ["full", "swa", "mla"])
    pool.check()


def test_layer_major_fields_of_odd_bytes_stay_within_the_budget() -> None:
    """Between rows of 3 bytes and their float32 scales lies padding, for which a page has to go."""
    spec = Attention("full", (0,), 1, 3, "int8", scales="per_token_head")
    for total in range(29, 120):
        made = plan([spec], total_bytes=total, page_size=1, layouts=layer_wise)
        assert 0 <= made.unused_bytes < 14 + 4, total
        assert made.subpools["full"].layout.total_bytes <= total


def test_a_region_starts_where_elements_are_aligned() -> None:
    made = plan([FULL, SWA, MLA], tokens=7, page_size=1, layouts=mixed)
    assert made.regions[1].offset % 4096 == 0
    assert made.regions[1].offset >= made.regions[0].total_bytes


def refused(text: str, specs: tuple[Spec, ...] = (FULL, SWA), **options: Any) -> None:
    with pytest.raises(PlanError, match=f"^{text}"):
        plan(specs, **options)


def test_a_budget_too_small_for_two_pages() -> None:
    text = re.escape(
        "300 bytes hold 1 pages of 256 bytes for 'full'; at least 2 are needed, one of them the sink (fix: raise the "
        "budget to 512 or lower page_size)"
    )
    refused(f"{text}$", (FULL,), total_bytes=300, page_size=4)
    assert plan([FULL], total_bytes=512, page_size=4).subpools["full"].max_pages == 1


def test_a_budget_too_small_for_slabs_names_one_that_will_do() -> None:
    """Pages of 256 and 384 bytes have 768 in common; slab 0 is the sink and each needs one."""
    text = re.escape(
        "1000 bytes cannot be divided into slabs for pages of full 256, swa 384 bytes: within waste_limit=0.02 a slab "
        "takes 768 bytes and 3 are needed, one of them the sink (fix: raise total_bytes to 2304, raise waste_limit, or "
        "change page_size)"
    )
    refused(f"{text}$", total_bytes=1000, page_size=4)
    refused("2303 bytes cannot be divided", total_bytes=2303, page_size=4)
    assert plan([FULL, SWA], total_bytes=2304, page_size=4).regions[0].num_slabs == 3
    loose = plan([FULL, SWA], total_bytes=2303, page_size=4, waste_limit=0.4)
    assert loose.regions[0].slab_bytes == 384


def test_the_advice_counts_what_budgets_take() -> None:
    options: dict[str, Any] = {"page_size": 4, "layouts": mixed, "budgets": {"swa": 9_000}}
    text = (
        r"10000 bytes, 12928 of them taken by budgets, cannot be divided into slabs for pages of full 256, mla 128 "
        r"bytes: within waste_limit=0.02 a slab takes 256 bytes and 3 are needed, one of them the sink "
        r"\(fix: raise total_bytes to 13696,"
    )
    refused(text, (FULL, MLA, SWA), total_bytes=10_000, **options)
    assert plan([FULL, MLA, SWA], total_bytes=13_696, **options).total_bytes <= 13_696


def test_budgets_may_not_come_to_more_than_the_total() -> None:
    options: dict[str, Any] = {"page_size": 4, "layouts": layer_wise, "budgets": {"full": 8192, "swa": 9000}}
    text = (
        r"10000 bytes do not hold \{'full': 8192, 'swa': 8832\} bytes, which take 17024 with the space between them "
        r"\(fix: lower budgets, or raise total_bytes to 17024\)$"
    )
    refused(text, total_bytes=10_000, **options)
    assert plan([FULL, SWA], total_bytes=17_024, **options).unused_bytes == 0


@pytest.mark.parametrize(
    ("budgets", "text"),
    [
        (
            None,
            r"sub-pool 'full' cannot share slabs, because each of its layers is contiguous over all pages or nobody ",
        ),
        (
            {"full": 4096},
            r"sub-pool 'swa' cannot share slabs.*\(fix: give its bytes in budgets=\{'swa': \.\.\.\}, or use a ",
        ),
        ({"full": 300, "swa": 4096}, r"300 bytes hold 1 pages of 256 bytes for 'full'; at least 2 are needed"),
        (
            {"ful": 4096},
            r"budgets=\{'ful': 4096\}: expected beside total_bytes, for sub-pools that cannot share slabs, which ",
        ),
        ({"full": 4096.5, "swa": 1}, r"budgets\['full'\]=4096\.5: expected an integer of at least 1$"),
        ({"full": -1, "swa": 1}, r"budgets\['full'\]=-1: expected an integer of at least 1$"),
    ],
)
def test_what_budgets_are_refused_with(budgets: Mapping[str, Any] | None, text: str) -> None:
    refused(text, total_bytes=100_000, page_size=4, layouts=layer_wise, budgets=budgets)


def test_budgets_of_those_that_share_slabs_or_of_a_plan_of_tokens_are_refused() -> None:
    refused(r"budgets=\{'full': 4096\}: expected beside total_bytes", total_bytes=10_000, budgets={"full": 4096})
    refused(
        r"budgets=\{'full': 4096\}: expected beside total_bytes", tokens=10, layouts=layer_wise, budgets={"full": 4096}
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give total_bytes or tokens, one of them: got total_bytes=None, tokens=None$"),
        ({"total_bytes": 9, "tokens": 9}, "give total_bytes or tokens, one of them: got total_bytes=9, tokens=9$"),
        ({"total_bytes": 1e9}, r"total_bytes=1000000000\.0: expected an integer of at least 1$"),
        ({"total_bytes": True}, "total_bytes=True: expected an integer of at least 1$"),
        ({"tokens": 0}, "tokens=0: expected an integer of at least 1$"),
        ({"tokens": 5, "requests": 0}, "requests=0: expected an integer of at least 1$"),
        ({"tokens": 5, "page_size": -16}, "page_size=-16: expected an integer of at least 1$"),
        ({"tokens": 5, "waste_limit": 1.0}, r"waste_limit=1\.0: expected a number from 0 to below 1$"),
        ({"tokens": 5, "waste_limit": -0.1}, r"waste_limit=-0\.1: expected a number from 0 to below 1$"),
        ({"tokens": 5, "waste_limit": "2%"}, "waste_limit='2%': expected a number from 0 to below 1$"),
    ],
)
def test_what_arguments_are_refused_with(options: dict[str, Any], text: str) -> None:
    refused(text, **options)


def test_specs_need_names_of_their_own() -> None:
    refused(r"a plan needs specs of distinct names: got \[\]$", (), tokens=5)
    refused(r"a plan needs specs of distinct names: got \['full', 'full'\]$", (FULL, FULL), tokens=5)


def test_a_form_that_cannot_exist_is_refused_at_planning() -> None:
    with pytest.raises(LayoutError, match="field 'k' has no block form: a page's rows take 64 bytes but span 256"):
        plan([FULL], tokens=5, page_size=4, layouts=lambda spec, size: token_major(spec, size, forms=("block",)))


def test_a_full_pool_says_so_by_allocation() -> None:
    """The promise of ``max_pages`` is exact: one page more cannot be had."""
    made = plan([FULL, SWA], total_bytes=50_000, page_size=4)
    for name, sub in made.subpools.items():
        pool = pool_of(made)
        pool.alloc(sub.max_pages * 4, name)
        with pytest.raises(PoolExhausted):
            pool.alloc(1, name)


def test_a_region_begins_where_its_layout_is_aligned() -> None:
    def layouts(spec: Spec, page_size: int) -> PoolLayout:
        return page_major(spec, page_size, align=192) if spec.name == "c" else layer_major(spec, page_size)

    specs = [Attention(name, (layer,), 1, 5, "bfloat16") for layer, name in enumerate("abc")]
    result = plan(specs, total_bytes=100_000, budgets={"a": 999, "b": 4_321, "c": 20_000}, page_size=3, layouts=layouts)
    assert [region.offset % 4096 for region in result.regions] == [0, 0, 0]
    assert result.subpools["c"].layout.origin % 192 == 0
    assert result.subpools["c"].layout.origin > 0
