"""Inputs on which other pools have failed, where the bytes count: budgets, narrow and uneven rows, NaN, moves."""

import pytest
import torch

from pool.build import PAGE_SIZES, binding, full, make, page_bytes, physical, slots, swa
from statehal import Attention, plan
from statehal.pool import StatePool
from statehal.pool.member import Hygiene
from statehal.spec import Spec

MOVED: dict[str, tuple[tuple[Spec, ...], tuple[str, ...]]] = {
    "shared slabs": ((full(), swa()), ("swa",)),
    "joint": ((full(), swa(), slots()), ("full", "swa")),
    "slots": ((full(), slots()), ("slots",)),
}
each_page_size = pytest.mark.parametrize("page_size", PAGE_SIZES)


@pytest.mark.parametrize("odd", [1, 3, 5, 7, 15])
@pytest.mark.parametrize("specs", [(full(dtype="bfloat16"),), (full(dtype="bfloat16"), swa(dtype="bfloat16"))], ids=len)
def test_case_07_a_budget_that_no_page_divides_is_rounded_down_and_reported(specs: tuple[Spec, ...], odd: int) -> None:
    even = plan(specs, total_bytes=10_000, page_size=4).total_bytes
    divided = plan(specs, total_bytes=even + odd, page_size=4)
    assert (divided.total_bytes, divided.unused_bytes) == (even, odd)
    pool = binding().allocate(divided)
    sub = pool["full"]
    pages = sub.alloc(pool.available("full").pages * 4)
    rows = torch.randn(pages.tokens, 1, 4).bfloat16()
    ids = sub.kernel_ids(pages.token_ids())
    binding().kv(sub).write(1, ids, rows, -rows)
    assert torch.equal(sub.view("v", 1)[ids.tensor], -rows)


@each_page_size
@pytest.mark.parametrize(
    ("dim", "dtype"), [(4, "bfloat16"), (2, "float32"), (8, "int8"), (1, "float8_e4m3fn"), (3, "float16")]
)
def test_case_08_a_row_of_a_few_bytes_works(dim: int, dtype: str, page_size: int) -> None:
    spec = Attention("full", (0, 1), kv_heads=1, head_dim=dim, dtype=dtype)
    pool = make(spec, swa(), page_size=page_size)
    sub = pool["full"]
    pages = sub.alloc(3 * page_size)
    ids = sub.kernel_ids(pages.token_ids())
    k, v = (torch.randint(0, 100, (pages.tokens, 1, dim)).to(getattr(torch, dtype)) for _ in range(2))
    for layer in spec.layers:
        binding().kv(sub).write(layer, ids, k, v)
    for layer in spec.layers:
        assert torch.equal(sub.view("k", layer)[ids.of(sub.layout.form("k"))].float(), k.float())
        assert torch.equal(sub.view("v", layer)[ids.of(sub.layout.form("v"))].float(), v.float())


@each_page_size
def test_case_09_rows_of_unequal_width_are_read_with_their_own_strides(page_size: int) -> None:
    layers = (0, 1, 2, 3, 4)
    spec = Attention("mla", layers, kv_heads=2, head_dim=192, v_head_dim=128, dtype="bfloat16")
    pool = make(spec, pages=3, page_size=page_size)
    sub = pool["mla"]
    payload = len(layers) * page_size * 2 * (192 + 128) * 2
    assert sub.plan.waste == pytest.approx(1 - payload / sub.layout.page_bytes)
    assert sub.plan.waste < (0.18 if page_size == 1 else 0.08)
    pages = sub.alloc(3 * page_size)
    ids = sub.kernel_ids(pages.token_ids())
    assert len(ids.tensors) == 2
    written = {}
    for layer in layers:
        written[layer] = [torch.randn(pages.tokens, 2, dim).bfloat16() for dim in (192, 128)]
        binding().kv(sub).write(layer, ids, *written[layer])
    for layer, (k, v) in written.items():
        assert torch.equal(sub.view("k", layer)[ids.of(sub.layout.form("k"))], k)
        assert torch.equal(sub.view("v", layer)[ids.of(sub.layout.form("v"))], v)


def attend_past_the_end(pool: StatePool, name: str, live: int) -> torch.Tensor:
    """Weights 1 on live tokens and 0 on the rest of their pages, times V, as a kernel that reads whole pages does."""
    sub = pool[name]
    pages = sub.alloc(live)
    size = sub.page_size
    whole = sub.space("virtual").assume((pages.page_ids().tensor[:, None] * size + torch.arange(size)).flatten())
    ids = sub.kernel_ids(whole)
    weights = (torch.arange(len(whole)) < live).float()
    values = [sub.view("v", layer)[ids.tensor].float() for layer in sub.spec.layers]
    return torch.stack([torch.einsum("t,thd->hd", weights, one) for one in values])


@pytest.mark.parametrize("hygiene", ["zero", "none", "poison"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "int8"])
@each_page_size
def test_case_11_nan_state_never_shows_in_pages_made_of_its_slabs(dtype: str, hygiene: Hygiene, page_size: int) -> None:
    pool = make(full(dtype=dtype), slots(), pages=6, page_size=page_size, hygiene=hygiene)
    conv = pool["slots"].alloc(pool.available("slots").pages)
    for page in physical(pool["slots"], conv):
        page_bytes(pool["slots"], page).view(torch.float32).fill_(float("nan"))
    pool["slots"].free(conv)
    slabs = pool["full"].plan.pages_per_slab
    result = attend_past_the_end(pool, "full", (slabs + 1) * page_size - page_size // 2)
    if hygiene == "poison" and dtype != "int8":
        assert bool(result.isnan().all()), "poison marks what nobody wrote"
    else:
        assert not bool(result.any())


@pytest.mark.parametrize("hygiene", ["zero", "none"])
@each_page_size
def test_case_11_a_page_reused_by_its_own_sub_pool_follows_the_hygiene(hygiene: Hygiene, page_size: int) -> None:
    pool = make(full(dtype="bfloat16"), swa(), page_size=page_size, hygiene=hygiene)
    sub = pool["full"]
    first, keeper = sub.alloc(page_size), sub.alloc(page_size)
    sub.view("v", 0)[sub.kernel_ids(first.token_ids()).tensor] = float("nan")
    page = physical(sub, first)
    sub.free(first)
    result = attend_past_the_end(pool, "full", page_size)
    assert bool(result.isnan().any()) == (hygiene == "none")
    assert page == [one for one in range(sub.layout.num_pages) if sub.member.virtual[one] not in (0, *keeper.ids)]


@pytest.mark.parametrize("kind", MOVED)
@each_page_size
def test_case_12_compaction_moves_whole_envelopes_byte_for_byte(kind: str, page_size: int) -> None:
    specs, names = MOVED[kind]
    pool = make(*specs, pages=100, page_size=page_size)
    size, per_slab = pool[names[0]].page_size, max(pool[name].plan.pages_per_slab for name in names)
    made = [pool.alloc(size, names) for _ in range(3 * per_slab)]
    for name in names:
        for pages in made:
            (page,) = physical(pool[name], pages)
            page_bytes(pool[name], page).random_(1, 256)
    kept = made[::per_slab]
    pool[names[0]].free([pages for pages in made if pages not in kept])
    held = {(name, i): physical(pool[name], pages)[0] for name in names for i, pages in enumerate(kept)}
    before = {key: page_bytes(pool[key[0]], page).clone() for key, page in held.items()}
    done = pool.compact(1000)
    after = {(name, i): physical(pool[name], pages)[0] for name in names for i, pages in enumerate(kept)}
    assert done.moves == sum(after[key] != page for key, page in held.items()) > 0
    for (name, i), page in after.items():
        assert torch.equal(page_bytes(pool[name], page), before[name, i])
    pool.check()
