"""Places of two digits: a shuffled V cache ``[blocks, heads, page_size / x, dim, x]``."""

import pytest
import torch

from statehal.errors import LayoutError
from statehal.layout import AddressForm, FieldLayout, PoolLayout, address_form, view_geometry

HEADS, DIM, PS, X, PAGES = 2, 3, 8, 4, 3
PAGE = HEADS * DIM * PS * 2


def shuffled(page_stride: int = PAGE, base: int = 0) -> FieldLayout:
    return FieldLayout(
        "v",
        "bfloat16",
        ((0,), (1,)),
        (HEADS, DIM),
        (PS * DIM * 2, X * 2),
        (PS // X, X),
        (DIM * X * 2, 2),
        base,
        PAGE,
        max(page_stride, 2 * PAGE),
    )


def walk() -> dict[tuple[int, int, int], int]:
    """``(slot, head, d)`` to byte within one layer of one page, from the order of memory alone."""
    places = {}
    at = 0
    for head in range(HEADS):
        for group in range(PS // X):
            for d in range(DIM):
                for digit in range(X):
                    places[group * X + digit, head, d] = at
                    at += 2
    return places


def test_addresses_are_those_of_the_walk() -> None:
    field = shuffled(base=6, page_stride=2 * PAGE + 10)
    assert field.page_size == PS
    assert field.token_stride is None
    for page in range(PAGES):
        for layer in (0, 1):
            for (slot, head, d), at in walk().items():
                token = page * PS + slot
                expected = 6 + page * (2 * PAGE + 10) + layer * PAGE + at
                assert field.address(layer, token, (head, d)) == expected


def test_there_is_no_row_form() -> None:
    with pytest.raises(
        LayoutError,
        match=r"^field 'v' has no row form: its place in a page is mixed-radix \(2, 4\) "
        r"\(fix: use the block or page form\)$",
    ):
        address_form(shuffled(), "row")
    layout = PoolLayout((shuffled(),), (("v", ("row",)),))
    with pytest.raises(LayoutError, match="no row form"):
        layout.check_bounds("full")


@pytest.mark.parametrize(("kind", "ratio"), [("block", 2), ("page", 1)])
def test_block_and_page_views_reach_the_bytes(kind: str, ratio: int) -> None:
    field = shuffled(base=16)
    layout = PoolLayout((field,), (("v", ("block", "page")),), num_pages=PAGES)
    assert address_form(field, kind) == AddressForm(kind, ratio)  # type: ignore[arg-type]
    buffer = torch.arange(layout.total_bytes // 2, dtype=torch.int16)
    geometry = view_geometry(field, kind, 1, PAGES)  # type: ignore[arg-type]
    assert geometry.shape == ((PAGES - 1) * ratio + 1, PS // X, X, HEADS, DIM)
    view = buffer.as_strided(geometry.shape, geometry.strides, geometry.offset)
    for page in range(PAGES):
        for (slot, head, d), at in walk().items():
            element = view[page * ratio, slot // X, slot % X, head, d]
            assert int(element) == (16 + page * 2 * PAGE + PAGE + at) // 2


def test_a_page_that_is_no_whole_number_of_blocks_has_no_block_form() -> None:
    with pytest.raises(
        LayoutError,
        match=rf"^field 'v' has no block form: page_stride {2 * PAGE + 2} is not a multiple of the block's {PAGE} ",
    ):
        address_form(shuffled(page_stride=2 * PAGE + 2), "block")
