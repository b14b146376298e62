"""Views over a buffer of exactly ``total_bytes``: kernel ids read and write the oracle's bytes and no others."""

import pytest
import torch
from hypothesis import given, settings

from layout import oracle
from layout.cases import Case, any_case, attention, conv_case, token_case
from layout.oracle import Row
from statehal.errors import LayoutError
from statehal.layout import FormKind, address_form, view_geometry
from statehal.pool.views import field_view

KINDS: tuple[FormKind, ...] = ("row", "block", "page")


def exists(case: Case, row: Row, kind: FormKind) -> bool:
    stride, step = case.page_stride(row), case.steps[row.name]
    if kind == "row":
        return stride % step == 0
    if kind == "block":
        return case.dense(row) and stride % (case.page_size * row.bytes()) == 0
    return True


def make_view(buffer: torch.Tensor, case: Case, row: Row, kind: FormKind, layer: int) -> torch.Tensor:
    """The view of a field over a buffer that may end in the middle of an element of a wider dtype."""
    geometry = view_geometry(case.layout.field(row.name), kind, case.ids[row.name][layer][0], case.num_pages)
    whole = buffer[: len(buffer) // row.itemsize * row.itemsize]
    return whole.view(getattr(torch, geometry.dtype)).as_strided(geometry.shape, geometry.strides, geometry.offset)


def entry(case: Case, row: Row, kind: FormKind, view: torch.Tensor, page: int, slot: int) -> torch.Tensor:
    """The row of a token, found by its kernel id in the oracle's formula."""
    token = oracle.kernel_id(kind, page, slot, case.page_size, case.page_stride(row), case.steps[row.name], row)
    form = address_form(case.layout.field(row.name), kind)
    assert page * form.multiplier("tokens", case.page_size) + slot == token
    if kind == "row":
        return view[token]
    block, place = divmod(token, case.page_size)
    assert page * form.multiplier("pages", case.page_size) == block
    return view[block, place]


def bytes_of(row: torch.Tensor) -> list[int]:
    return [int(byte) for byte in row.contiguous().reshape(-1).view(torch.uint8).tolist()]


def check_views(case: Case) -> None:
    total = case.layout.total_bytes
    chosen = torch.Generator().manual_seed(0)
    content = torch.randint(0, 256, (total,), dtype=torch.uint8, generator=chosen)
    data = content.tolist()
    last = (case.num_pages - 1, case.page_size - 1)
    for row in case.rows:
        for kind in KINDS:
            if not exists(case, row, kind):
                with pytest.raises(LayoutError, match=f"field '{row.name}' has no {kind} form"):
                    address_form(case.layout.field(row.name), kind)
                continue
            for layer in {0, row.layers // 2, row.layers - 1}:
                view = make_view(content, case, row, kind, layer)
                assert len(view) == oracle.rows_in_view(
                    kind, case.num_pages, case.page_size, case.page_stride(row), case.steps[row.name], row
                )
                final = oracle.kernel_id(kind, *last, case.page_size, case.page_stride(row), case.steps[row.name], row)
                assert len(view) - 1 == (final if kind == "row" else final // case.page_size)
                for page, slot in {(0, 0), (case.num_pages // 2, case.page_size // 2), last}:
                    places = [
                        case.address(row.name, layer, page, slot, element) + byte
                        for element in oracle.elements(row.shape)
                        for byte in range(row.itemsize)
                    ]
                    assert bytes_of(entry(case, row, kind, view, page, slot)) == [data[place] for place in places]
                    written = torch.zeros(total, dtype=torch.uint8)
                    target = entry(case, row, kind, make_view(written, case, row, kind, layer), page, slot)
                    value = torch.full((row.bytes(),), 0x3A, dtype=torch.uint8)
                    target.copy_(value.view(target.dtype).reshape(target.shape))
                    assert sorted(places) == written.nonzero().flatten().tolist()


@given(any_case())
@settings(max_examples=60, deadline=None)
def test_kernel_ids_reach_the_bytes_of_the_walk(case: Case) -> None:
    check_views(case)


@pytest.mark.parametrize("constructor", ["page_major", "token_major", "layer_major", "nz"])
@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_views_of_every_constructor(constructor: str, order: str, page_size: int) -> None:
    kept = attention((0, 1, 2), 3, 16)
    align = 512 if constructor == "nz" else 1
    check_views(token_case(kept, constructor, page_size, order=order, align=align, num_pages=3))


@pytest.mark.parametrize("order", ["rows_first", "channels_first"])
def test_views_of_conv_windows(order: str) -> None:
    check_views(conv_case((0, 1), 6, 4, order=order, state=(2, 3), num_pages=3, widen=2))


@pytest.mark.parametrize("constructor", ["page_major", "token_major", "layer_major"])
def test_the_view_ends_on_the_last_valid_row(constructor: str) -> None:
    """A buffer that ends where the last row ends is enough, and one an element shorter is not."""
    case = token_case(attention((0, 1, 2), 2, 4), constructor, 4, num_pages=3)
    row = case.row("k")
    for kind in KINDS:
        if not exists(case, row, kind):
            continue
        for layer in range(row.layers):
            end = case.address("k", layer, 2, 3, (1, 3)) + row.itemsize
            assert make_view(torch.zeros(end, dtype=torch.uint8), case, row, kind, layer).numel()
            with pytest.raises(RuntimeError, match="out of bounds"):
                make_view(torch.zeros(end - row.itemsize, dtype=torch.uint8), case, row, kind, layer)


def test_the_pools_own_views_are_these() -> None:
    case = token_case(attention((0, 5), 3, 4), "page_major", 4, num_pages=3)
    buffer = torch.arange(case.layout.total_bytes, dtype=torch.uint8)
    for layer, model_layer in enumerate((0, 5)):
        own = field_view(buffer, case.layout, "v", "row", model_layer)
        assert own.data_ptr() == buffer.data_ptr() + case.address("v", layer, 0, 0, (0, 0))
        assert bytes_of(own[-1]) == bytes_of(make_view(buffer, case, case.row("v"), "row", layer)[-1])


def test_uniform_rows_share_one_table_whose_ratio_is_twice_layers_times_page_size() -> None:
    for layers, page_size in ((1, 1), (7, 16), (61, 3)):
        layout = token_case(attention(tuple(range(layers)), 3, 4), "page_major", page_size).layout
        (form,) = layout.address_forms
        assert (form.kind, form.ratio) == ("row", 2 * layers * page_size)


def test_rows_of_unequal_width_have_a_table_each_and_an_entry_has_one() -> None:
    kept = attention((0, 1, 2), 2, 6, v_head_dim=4)
    paged = token_case(kept, "page_major", 4).layout.resize(3, 3 * 4 * 40)
    assert [form.ratio for form in paged.address_forms] == [3 * 4 * 40 // 24, 3 * 4 * 40 // 16]
    (form,) = token_case(kept, "token_major", 4).layout.address_forms
    assert (form.kind, form.ratio) == ("row", 4)
