"""Every way of giving an operation ids that are not its own: other spaces, stale ids, raw tensors."""

import re
from collections.abc import Callable

import pytest
import torch

from pool.build import binding, full, make, physical, slots, swa
from statehal import Attention, bind, plan
from statehal.errors import ArgumentError, StaleIds, WrongIdSpace
from statehal.ids import KernelIds, PhysicalIds, VirtualIds
from statehal.layout import page_major, token_major
from statehal.pool import Pages, StatePool

UNEVEN = Attention("uneven", (0, 1), kv_heads=1, head_dim=6, v_head_dim=4, dtype="float32")


def test_every_other_space_is_refused_and_both_are_named() -> None:
    pool, other = make(full(), swa(), slots()), make(full(), swa())
    pages, conv = pool.alloc(4), pool.alloc(2, "slots")
    sub, virtual = pool["swa"], pages.token_ids()
    rows = torch.zeros(4, 1, 4)
    writer = binding().kv(sub)
    wanted = f"write to layer 2 of 'swa' takes kernel tokens of 'swa' in pool {pool.fingerprint[:8]} but was given "
    fix = " (fix: pool['swa'].kernel_ids(virtual)"
    bare = (
        "a bare {}, of which nothing says what it counts; unnoticed, numbers of any other space would name rows of "
        f"other requests{fix}, or declare a tensor with space.assume(tensor))"
    )

    def of(what: str, why: str, owner: StatePool = pool) -> str:
        unnoticed = f"unnoticed, the tokens of 'swa' with those numbers, {why}, would be read or written"
        return f"{what} in pool {owner.fingerprint[:8]}; {unnoticed}{fix})"

    for ids, got in {
        virtual: of("virtual tokens of 'tokens'", "which no page table was asked for"),
        pool["full"].kernel_ids(virtual): of(
            "kernel tokens of 'full'", "which are of other pages than those of 'full'"
        ),
        sub.physical_ids(virtual): of("physical tokens of 'swa'", "which lie elsewhere"),
        sub.kernel_ids(pages.page_ids()): of("kernel pages of 'swa'", "which are none of these pages"),
        pool["slots"].kernel_ids(conv.page_ids()): of("kernel pages of 'slots'", "which are none of these pages"),
        other["swa"].kernel_ids(other.alloc(4).token_ids()): of(
            "kernel tokens of 'swa'", "which are of other pages than those of that pool", other
        ),
        torch.arange(4): bare.format("Tensor"),
        None: bare.format("NoneType"),
    }.items():
        before = pool.buffer.clone()
        with pytest.raises(WrongIdSpace, match=f"^{re.escape(wanted + got)}"):
            writer.write(2, ids, rows + 1, rows + 1)  # type: ignore[arg-type]
        assert torch.equal(pool.buffer, before)


@pytest.mark.parametrize("method", ["kernel_ids", "physical_ids"])
def test_translation_takes_virtual_ids_of_its_family_only(method: str) -> None:
    pool = make(full(), swa(), slots())
    sub, conv = pool["full"], pool.alloc(1, "slots").page_ids()
    translate: Callable[[object], object] = getattr(sub, method)
    virtual = pool.alloc(3).token_ids()
    for ids, unit, got in (
        (conv, "pages", "virtual pages of 'slots'"),
        (sub.kernel_ids(virtual), "tokens", "kernel tokens of 'full'"),
        (sub.physical_ids(virtual), "tokens", "physical tokens of 'full'"),
        (torch.arange(3), "tokens", "a bare Tensor, of which nothing says"),
        (7, "tokens", "a bare int, of which nothing says"),
    ):
        wanted = f"{method} of 'full' takes virtual {unit} of 'tokens' in pool {pool.fingerprint[:8]}"
        with pytest.raises(WrongIdSpace, match=f"^{re.escape(f'{wanted} but was given {got}')}"):
            translate(ids)


def test_an_unknown_space_is_refused() -> None:
    sub = make(full())["full"]
    for kind, unit in (("row", "tokens"), ("kernel", "slots")):
        with pytest.raises(ArgumentError, match=rf"^no id space '{kind}' in '{unit}': expected virtual, physical or"):
            sub.space(kind, unit)


def moved_pool() -> tuple[StatePool, Pages]:
    """A pool in which a compaction will move the handle's page."""
    pool = make(full(), swa(), pages=8)
    made = [pool.alloc(4, "full") for _ in range(pool["full"].plan.pages_per_slab * 2)]
    pool.free([pages for i, pages in enumerate(made) if i % pool["full"].plan.pages_per_slab])
    return pool, made[0]


def test_ids_made_before_a_compaction_are_stale_in_every_sub_pool() -> None:
    pool, pages = moved_pool()
    sub = pool["full"]
    virtual = pages.token_ids()
    stale = sub.kernel_ids(virtual)
    rows = torch.ones(4, 1, 4)
    writer = binding().kv(sub)
    writer.write(0, stale, rows, rows)
    assert pool.compact(0).moves == 0
    writer.write(0, stale, rows, rows)
    assert pool.compact(1).moves == 1
    text = (
        "write to layer 0 of 'full': the ids are of epoch 0 and the pool is at 1, because a compaction moved pages in "
        "between; they could name pages of other requests (fix: translate the virtual ids again)"
    )
    before = pool.buffer.clone()
    with pytest.raises(StaleIds, match=f"^{re.escape(text)}$"):
        writer.write(0, stale, rows * 2, rows * 2)
    assert torch.equal(pool.buffer, before)
    fresh = sub.kernel_ids(virtual)
    assert torch.equal(sub.view("k", 0)[fresh.tensor], rows)
    writer.write(0, sub.kernel_ids(virtual, stale), rows * 3, rows * 3)
    assert torch.equal(sub.view("k", 0)[fresh.tensor], rows * 3)


@pytest.mark.parametrize("layout", [page_major, token_major])
@pytest.mark.parametrize("check", [True, False])
def test_case_17_full_attention_ids_declared_of_a_window(layout: Callable[..., object], check: bool) -> None:
    specs = (full(), swa())
    divided = plan(specs, tokens=200, page_size=4, layouts=layout, waste_limit=0.1)  # type: ignore[arg-type]
    pool = binding(check).allocate(divided)
    sub, other = pool["swa"], pool["full"]
    pool.alloc(100, "full")
    pages = pool.alloc(4)
    right, foreign = sub.kernel_ids(pages.token_ids()), other.kernel_ids(pages.token_ids())
    assert physical(sub, pages) != physical(other, pages)
    assert sub.space("kernel").assume(right.tensor).tensor is right.tensor
    if not check:
        assert sub.space("kernel").assume(foreign.tensor).tensor is foreign.tensor
        return
    text = (
        f"ids {foreign.tensor.tolist()} were declared kernel tokens of 'swa' in pool {pool.fingerprint[:8]} but name "
        f"no page in use there; all of them would be live in 'full' (fix: pool['swa'].kernel_ids(virtual))"
    )
    before = pool.buffer.clone()
    with pytest.raises(WrongIdSpace, match=f"^{re.escape(text)}$"):
        sub.space("kernel").assume(foreign.tensor)
    assert torch.equal(pool.buffer, before)


def test_checking_is_switched_on_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, checks in (("1", True), ("0", False)):
        monkeypatch.setenv("STATEHAL_CHECK", value)
        hal = bind("cpu", "reference")
        pool = hal.allocate(plan([full()], tokens=40, page_size=4))
        space = pool["full"].space("virtual")
        if checks:
            with pytest.raises(WrongIdSpace, match=r"^ids \[4, 5\] were declared virtual tokens of 'tokens' in pool "):
                space.assume(torch.tensor([4, 5]))
        else:
            assert space.assume(torch.tensor([4, 5])).tensor.tolist() == [4, 5]


@pytest.mark.parametrize("spec", [full(), UNEVEN, full(ids="direct")], ids=lambda spec: f"{spec.name}-{spec.ids}")
@pytest.mark.parametrize("unit", ["tokens", "pages"])
@pytest.mark.parametrize("kind", ["virtual", "physical", "kernel"])
def test_checking_takes_live_ids_and_padding_and_nothing_else(kind: str, unit: str, spec: Attention) -> None:
    pool = make(spec, swa(), check=True)
    sub = pool[spec.name]
    pages, gone = sub.alloc(8), sub.alloc(4)
    translate = {"virtual": lambda ids: ids, "physical": sub.physical_ids, "kernel": sub.kernel_ids}[kind]
    virtual, freed = (pages.token_ids(), gone.token_ids()) if unit == "tokens" else (pages.page_ids(), gone.page_ids())
    good, bad = translate(virtual), translate(freed)
    space = sub.space(kind, unit)
    assert type(good) is {"virtual": VirtualIds, "physical": PhysicalIds, "kernel": KernelIds}[kind]
    padded = [torch.cat([tensor, torch.tensor([-1, 0])]) for tensor in good.tensors]
    assert space.assume(*padded).tensors == tuple(padded)
    assert space.assume(*bad.tensors).epoch == good.epoch
    sub.free(gone)
    with pytest.raises(WrongIdSpace, match=rf"^ids \[.*\] were declared {kind} {unit} of .* but name no page"):
        space.assume(*bad.tensors)
    far = [tensor + 10**6 for tensor in good.tensors]
    with pytest.raises(WrongIdSpace, match=r"but name no page in use there"):
        space.assume(*far)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int16, torch.uint8])
def test_only_int32_and_int64_can_be_ids(dtype: torch.dtype) -> None:
    space = make(full())["full"].space("kernel")
    with pytest.raises(
        ArgumentError, match=rf"^ids of kernel tokens of 'full' .* must be int32 or int64: got {dtype}$"
    ):
        space.assume(torch.ones(3, dtype=dtype))


def test_a_tensor_for_each_form_and_of_one_shape() -> None:
    space = make(UNEVEN, swa())["uneven"].space("kernel")
    one = torch.ones(3, dtype=torch.int64)
    with pytest.raises(ArgumentError, match=r"takes 2 tensors of ids, one an address form: got 1$"):
        space.assume(one)
    with pytest.raises(ArgumentError, match=r"must have one shape: got \[\(3,\), \(2,\)\]$"):
        space.assume(one, one[:2])
