"""The search against the definition: the smallest number of bytes that every kind of page divides with little waste."""

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from statehal.pool.slab_search import LARGEST_SLAB, PageSize, pages_per_slab, smallest_slab

Pages = list[tuple[int, int]]


def tight(page: tuple[int, int]) -> int:
    size, step = page
    while size % step:
        size += 1
    return size


def divides(page: tuple[int, int], slab: int, limit: Fraction) -> int:
    """The most pages that fill the slab exactly within the limit, 0 if none; by trying each number."""
    for count in range(slab // tight(page), 0, -1):
        if slab - count * tight(page) > limit * slab:
            return 0
        if slab % count == 0 and slab // count % page[1] == 0:
            return count
    return 0


def first_slab(pages: Pages, limit: Fraction, most: int) -> int | None:
    """The smallest slab, by trying all."""
    step = lcm(*(granularity for _, granularity in pages))
    for slab in range(step, most + 1, step):
        if all(divides(page, slab, limit) for page in pages):
            return slab
    return None


def ask(pages: Pages) -> list[PageSize]:
    return [PageSize(str(index), *page) for index, page in enumerate(pages)]


LIMITS = st.sampled_from([0.0, 0.015625, 0.0625, 0.125, 0.25, 0.5])
PAGES = st.lists(st.tuples(st.integers(1, 120), st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12])), min_size=1, max_size=3)


@given(PAGES, LIMITS)
@example([(174, 8), (153, 7), (152, 16)], 0.25)
@example([(24, 8), (24, 8)], 0.0)
@settings(max_examples=120, deadline=None)
def test_the_smallest_slab_is_found(pages: Pages, limit: float) -> None:
    common = lcm(*map(tight, pages))
    assume(common < 60_000)
    assert smallest_slab(ask(pages), limit) == first_slab(pages, Fraction(limit), common)


@given(PAGES, LIMITS, st.integers(1, 5000))
@settings(max_examples=80, deadline=None)
def test_nothing_above_the_cap_is_found(pages: Pages, limit: float, cap: int) -> None:
    assume(lcm(*map(tight, pages)) < 60_000)
    assert smallest_slab(ask(pages), limit, cap) == first_slab(
        pages, Fraction(limit), min(cap, lcm(*map(tight, pages)))
    )


@given(st.tuples(st.integers(1, 50), st.sampled_from([1, 2, 3, 8])), st.integers(1, 3000), LIMITS)
@settings(max_examples=200, deadline=None)
def test_the_most_pages_of_a_slab(page: tuple[int, int], slab: int, limit: float) -> None:
    assert (pages_per_slab(PageSize("p", *page), slab, limit) or 0) == divides(page, slab, Fraction(limit))


@given(
    st.lists(
        st.tuples(st.integers(4096, 40_000_000), st.sampled_from([2, 4, 96, 256, 1152, 4096])), min_size=2, max_size=3
    ),
    st.sampled_from([0.01, 0.02, 0.05]),
)
@example([(24743891, 4096), (36747560, 4096), (16168569, 4)], 0.02)
@settings(max_examples=60, deadline=None)
def test_pages_of_real_sizes_divide_what_is_found(pages: Pages, limit: float) -> None:
    slab = smallest_slab(ask(pages), limit)
    assert slab is not None
    assert slab <= lcm(*map(tight, pages))
    for page in ask(pages):
        count = pages_per_slab(page, slab, limit)
        assert count
        assert slab % count == 0
        assert slab // count >= tight((page.page_bytes, page.granularity))


def test_without_any_waste_only_the_least_common_multiple_will_do() -> None:
    assert smallest_slab(ask([(6, 1), (10, 1)]), 0.0) == 30
    assert smallest_slab(ask([(6, 1), (10, 1)]), 0.0, 29) is None
    assert smallest_slab(ask([(5, 3), (10, 1)]), 0.0) == 30


def test_where_no_slab_is_small_the_least_common_multiple_is_left() -> None:
    """Sizes so awkward that the search ends at its bound; with no budget to respect that is still an answer."""
    pages = [(2**33 - 9, 2**33 - 9), (2**33 + 17, 2**33 + 17)]
    assert lcm(*map(tight, pages)) > LARGEST_SLAB
    assert smallest_slab(ask(pages), 0.02) == lcm(*map(tight, pages))
    assert smallest_slab(ask(pages), 0.02, 2**40) is None


@pytest.mark.parametrize("limit", [0.01, 0.02, 0.05, 0.1])
def test_exactly_the_limit_is_within_it(limit: float) -> None:
    """A page of 1000 - w bytes that may lose w of 1000."""
    lost = round(1000 * limit)
    assert pages_per_slab(PageSize("p", 1000 - lost, 1), 1000, limit) == 1
    assert pages_per_slab(PageSize("p", 1000 - lost - 1, 1), 1000, limit) is None
