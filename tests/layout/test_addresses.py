"""Every constructor places every byte where a walk through memory finds it."""

import random

import pytest
from hypothesis import given, settings

from layout import oracle
from layout.cases import PAGE_SIZES, Case, any_case, attention, conv_case, latent, token_case
from statehal.errors import ArgumentError

CONSTRUCTORS = [
    ("page_major", "NHD"),
    ("page_major", "HND"),
    ("token_major", "NHD"),
    ("layer_major", "NHD"),
    ("layer_major", "HND"),
    ("nz", "NHD"),
]


def points(case: Case, most: int) -> list[tuple[str, int, int, int, tuple[int, ...]]]:
    """All ``(field, layer index, page, slot, element)``, or ``most`` of them and the corners."""
    if case.size <= most:
        return [
            (row.name, layer, page, slot, element)
            for row in case.rows
            for layer in range(row.layers)
            for page in range(case.num_pages)
            for slot in range(case.page_size)
            for element in oracle.elements(row.shape)
        ]
    chosen = random.Random(0)
    found = []
    for row in case.rows:
        last = (row.name, row.layers - 1, case.num_pages - 1, case.page_size - 1, tuple(n - 1 for n in row.shape))
        found += [(row.name, 0, 0, 0, tuple(0 for _ in row.shape)), last]
        found += [
            (
                row.name,
                chosen.randrange(row.layers),
                chosen.randrange(case.num_pages),
                chosen.randrange(case.page_size),
                tuple(chosen.randrange(n) for n in row.shape),
            )
            for _ in range(most // len(case.rows))
        ]
    return found


def check_addresses(case: Case, most: int = 4000) -> None:
    """Addresses are the oracle's, by every model layer id, and no two elements share a byte."""
    taken: set[int] = set()
    ends = 0
    for name, layer, page, slot, element in points(case, most):
        expected = case.address(name, layer, page, slot, element)
        token = page * case.page_size + slot
        field = case.layout.field(name)
        for model_layer in case.ids[name][layer]:
            assert field.address(model_layer, token, element) == expected
        assert field.address(case.ids[name][layer][0], token) == case.address(
            name, layer, page, slot, tuple(0 for _ in element)
        )
        size = case.row(name).itemsize
        if case.size <= most:
            assert taken.isdisjoint(range(expected, expected + size))
            taken.update(range(expected, expected + size))
        ends = max(ends, expected + size)
    assert ends <= case.layout.total_bytes


@pytest.mark.parametrize(("constructor", "order"), CONSTRUCTORS)
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (3, 5), (61, 1), (19, 3)])
def test_bytes_of_attention(constructor: str, order: str, page_size: int, layers: int, heads: int) -> None:
    dims = (32, 16) if constructor == "nz" else (3, 2)
    kept = attention(tuple(range(layers)), heads, dims[0], v_head_dim=dims[1])
    if layers * page_size * heads > 4000:
        kept = attention(tuple(range(layers)), heads, dims[1])
    check_addresses(token_case(kept, constructor, page_size, order=order, num_pages=2), most=600)


@pytest.mark.parametrize(("constructor", "order"), [one for one in CONSTRUCTORS if one[0] != "nz"])
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_bytes_of_latent_beside_an_indexer_row(constructor: str, order: str, page_size: int) -> None:
    check_addresses(token_case(latent((1, 2, 5), 8, 3, indexer=5), constructor, page_size, order=order), most=10**4)


@pytest.mark.parametrize("constructor", ["page_major", "token_major"])
def test_rows_of_some_layers_follow_those_of_all_without_a_gap(constructor: str) -> None:
    """A layer of k, v and five bytes ends in a byte of padding, except the last one."""
    extra = (("indexer", (5,), "uint8", None), ("marks", (3,), "int8", (0,)))
    case = token_case(attention((0, 1), 1, 1, extra=extra), constructor, 1)
    assert [case.address(name, 0, 0, 0, (0,)) for name in ("indexer", "marks")] == [4, 19]
    check_addresses(case)


@pytest.mark.parametrize("order", ["rows_first", "channels_first"])
@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("verify_tokens", [1, 5])
@pytest.mark.parametrize("layers", [1, 4])
def test_bytes_of_conv_windows(order: str, width: int, verify_tokens: int, layers: int) -> None:
    case = conv_case(
        tuple(range(layers)),
        7,
        width,
        order=order,
        verify_tokens=verify_tokens,
        state=(3, 2, 2),
        multiple=4,
        num_pages=3,
    )
    check_addresses(case, most=10**4)


@given(any_case())
@settings(max_examples=150, deadline=None)
def test_bytes_of_any_layout(case: Case) -> None:
    check_addresses(case)


@given(any_case())
@settings(max_examples=60, deadline=None)
def test_what_follows_from_the_integers(case: Case) -> None:
    """Payload is what the elements take; a page's bytes and the end of the buffer are the oracle's."""
    layout = case.layout
    payload = sum(case.page_size * row.layers * row.bytes() for row in case.rows)
    assert layout.payload_bytes == payload
    if layout.order == "page":
        stride = case.page_stride(case.rows[0])
        assert layout.page_bytes == stride
        first = min(case.address(row.name, 0, 0, 0, tuple(0 for _ in row.shape)) for row in case.rows)
        assert layout.total_bytes == first + case.num_pages * stride
    else:
        assert layout.page_bytes == payload
        row = case.rows[-1]
        last = case.address(
            row.name, row.layers - 1, case.num_pages - 1, case.page_size - 1, tuple(n - 1 for n in row.shape)
        )
        assert layout.total_bytes == last + row.itemsize
    layout.check()


@given(any_case())
@settings(max_examples=60, deadline=None)
def test_runs_are_the_bytes_of_page_0(case: Case) -> None:
    if case.size > 4000:
        return
    for row in case.rows:
        found: list[tuple[int, int]] = []
        for layer, start, length in case.layout.field(row.name).runs():
            found += [(layer, byte) for byte in range(start, start + length)]
        expected = {
            (layer, byte)
            for name, layer, page, slot, element in points(case, 4000)
            if name == row.name and page == 0
            for first in [case.address(name, layer, 0, slot, element)]
            for byte in range(first, first + row.itemsize)
        }
        assert len(found) == len(expected)
        assert set(found) == expected


def test_a_layer_that_the_field_lacks_is_refused() -> None:
    field = token_case(attention((1, 4), 1, 2, shared=((7, 4),)), "page_major", 3).layout.field("k")
    with pytest.raises(ArgumentError, match=r"^field 'k' has no layer 2: its layers are \[1, 4, 7\]$"):
        field.address(2, 0)
