"""``largest_request`` against a real pool in which one request grows token by token until nothing is left."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statehal.errors import PlanError, PoolExhausted
from statehal.layout import PoolLayout, conv_window, layer_major, page_major
from statehal.pool import Pages, PoolPlan, StatePool, plan
from statehal.reference.memory_ops import ReferenceMemoryOps
from statehal.spec import Attention, ConvRecurrent, Latent, Spec

ENOUGH = 300


def grow(made: PoolPlan, requests: int = 1) -> int:
    """Tokens to which ``requests`` requests grow side by side, windows evicted before each step; ``ENOUGH`` at most."""
    pool = StatePool(made, "cpu", ReferenceMemoryOps())
    specs = [sub.spec for sub in made.subpools.values()]
    tokens = [spec.name for spec in specs if spec.kind == "tokens"]
    held: list[Pages] = []
    try:
        for _ in range(requests):
            for spec in specs:
                if spec.kind == "slots":
                    pool.alloc(1, spec.name)
            if tokens:
                held.append(pool.alloc(0, tokens))
    except PoolExhausted:
        return 0
    for length in range(1, ENOUGH + 1):
        for pages in held:
            for spec in specs:
                window = getattr(spec, "window", None)
                if window is not None:
                    pool.evict(spec.name, pages, max(0, length - window))
            try:
                pool.extend(pages, 1)
            except PoolExhausted:
                return length - 1
    return ENOUGH


@st.composite
def models(draw: st.DrawFn) -> list[Spec]:
    heads = st.integers(1, 3)
    specs: list[Spec] = []
    if draw(st.booleans()):
        specs.append(Attention("full", tuple(range(draw(heads))), draw(heads), 4, "bfloat16"))
    if draw(st.booleans()):
        specs.append(Latent("mla", (20,), draw(st.sampled_from([4, 12])), 4, "bfloat16"))
    for name in draw(st.sampled_from([(), ("swa",), ("swa", "near")])):
        window = draw(st.integers(1, 20))
        specs.append(Attention(name, tuple(range(draw(heads))), draw(heads), 4, "bfloat16", window=window))
    if draw(st.booleans()) or not specs:
        specs.append(ConvRecurrent("conv", (30,), 8, 4, "bfloat16", state=(draw(heads), 4)))
    return specs


def own(spec: Spec, page_size: int) -> PoolLayout:
    """Layer-major for the windows, so that regions of one member are beside shared ones."""
    if spec.kind == "slots":
        return conv_window(spec)
    return layer_major(spec, page_size) if spec.name == "swa" else page_major(spec, page_size)


@given(models(), st.integers(1, 8), st.integers(300, 12_000), st.booleans(), st.integers(1, 3))
@settings(max_examples=120, deadline=None)
def test_the_largest_request_is_where_a_real_one_stops(
    specs: list[Spec], page_size: int, total: int, layer_wise: bool, requests: int
) -> None:
    options: dict[str, Any] = {"page_size": page_size, "waste_limit": 0.45}
    if layer_wise and len(specs) > 1 and any(spec.name == "swa" for spec in specs):
        options |= {"layouts": own, "budgets": {"swa": total // 3}}
        if len(specs) == 2:  # nobody is left to share slabs with
            other = next(spec.name for spec in specs if spec.name != "swa")
            options["budgets"][other] = total // 3
        total += 3 * 4096
    try:
        made = plan(specs, total_bytes=total, **options)
    except PlanError:
        assume(False)
    reached = grow(made)
    longest = made.largest_request()
    if longest is None or longest >= ENOUGH:
        assert reached == ENOUGH
    else:
        assert reached == longest
        assert made.fits(longest)
        assert not made.fits(longest + 1)
    together = grow(made, requests)
    assert made.fits(together, requests) or together == 0
    if together < ENOUGH:
        assert not made.fits(together + 1, requests)


def test_windows_and_slots_let_any_length_fit() -> None:
    window = Attention("swa", (0,), 1, 4, "bfloat16", window=16)
    conv = ConvRecurrent("conv", (1,), 8, 4, "bfloat16")
    made = plan([window, conv], total_bytes=20_000, page_size=4, waste_limit=0.4)
    assert made.largest_request() is None
    assert grow(made) == ENOUGH


def test_a_window_too_large_for_the_pool_is_the_limit() -> None:
    window = Attention("swa", (0,), 1, 4, "bfloat16", window=100)
    made = plan([window], total_bytes=64 * 6, page_size=4)
    assert made.largest_request() == grow(made) == 5 * 4


@pytest.mark.parametrize(("window", "pages"), [(1, 1), (2, 2), (4, 2), (5, 2), (6, 3), (9, 3), (10, 4)])
def test_a_window_touches_a_page_more_than_it_fills(window: int, pages: int) -> None:
    """Pages of four: a window of five, say, covers the last token of one page and the whole of the next."""
    spec = Attention("swa", (0,), 1, 4, "bfloat16", window=window)
    sub = plan([spec], tokens=1000, page_size=4).subpools["swa"]
    seen = max(len({token // 4 for token in range(end - window, end)}) for end in range(window, window + 8))
    assert sub.pages_for(1000) == seen == pages


def test_no_request_fits_where_sub_pools_compete_for_one_slab() -> None:
    """Two slots a request, and slabs for one."""
    specs = [ConvRecurrent(name, (0,), 8, 4, "bfloat16") for name in ("conv", "more")]
    made = plan(specs, total_bytes=3 * 52, page_size=4)
    assert made.largest_request() is None
    assert made.fits(10)
    assert not made.fits(10, requests=2)
    assert grow(made, requests=2) == 0
