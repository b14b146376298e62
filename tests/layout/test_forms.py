"""Which address forms exist, what they are refused with, and the int32 bound on those in use."""

import re
from collections.abc import Mapping

import pytest

from layout.cases import attention, conv_case, latent, token_case
from statehal.errors import AddressBoundError, LayoutError
from statehal.layout import AddressForm, FormKind, PoolLayout, address_form, page_major, token_major, view_geometry
from statehal.pool import plan
from statehal.spec import Attention, ExtraField, Latent, Spec


def with_forms(layout: PoolLayout, forms: Mapping[str, tuple[FormKind, ...]]) -> PoolLayout:
    return PoolLayout(layout.fields, tuple(forms.items()), layout.num_pages, layout.order)


def test_a_row_form_needs_whole_row_steps() -> None:
    case = token_case(attention((0,), 1, 3, v_head_dim=2), "page_major", 4)
    assert case.layout.page_bytes == 4 * (6 + 4)
    with pytest.raises(
        LayoutError,
        match=r"^field 'k' has no row form: page_stride 40 is not a multiple of token_stride 6 "
        r"\(fix: let the planner widen the page, or use the page form\)$",
    ):
        address_form(case.layout.field("k"), "row")
    assert address_form(case.layout.field("v"), "row").ratio == 10


def test_an_entry_has_no_block_form() -> None:
    layout = token_case(attention((0, 1), 1, 3), "token_major", 4).layout
    with pytest.raises(
        LayoutError,
        match=r"^field 'v' has no block form: a page's rows take 24 bytes but span 96 \(fix: use the row or page "
        r"form\)$",
    ):
        address_form(layout.field("v"), "block")


def test_a_block_form_needs_whole_blocks() -> None:
    layout = token_case(attention((0, 1, 2), 1, 3, v_head_dim=2), "page_major", 4).layout
    with pytest.raises(
        LayoutError,
        match=r"^field 'v' has no block form: page_stride 120 is not a multiple of the block's 16 bytes "
        r"\(fix: let the planner widen the page, or use the row or page form\)$",
    ):
        address_form(layout.field("v"), "block")


@pytest.mark.parametrize("constructor", ["page_major", "token_major", "layer_major", "nz"])
def test_the_page_form_always_exists(constructor: str) -> None:
    layout = token_case(attention((0, 1, 2), 3, 16), constructor, 3).layout
    assert address_form(layout.field("v"), "page") == AddressForm("page", 1)
    slots = conv_case((0, 1), 5, 3, state=(3,)).layout
    assert {address_form(field, "page") for field in slots.fields} == {AddressForm("page", 1)}


def test_an_unknown_form_is_refused() -> None:
    layout = token_case(attention((0,), 1, 2), "page_major", 4).layout
    with pytest.raises(LayoutError, match=r"^unknown address form 'rows': expected 'row', 'block' or 'page'$"):
        address_form(layout.field("k"), "rows")  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match=r"^field 'k' has forms \('rows',\): expected one or more of \('row', "):
        page_major(Attention("full", (0,), 1, 2, "bfloat16"), 4, forms=("rows",))  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match=r"^field 'k' has forms \(\): expected one or more of"):
        page_major(Attention("full", (0,), 1, 2, "bfloat16"), 4, forms=())


def test_for_nhd_the_block_slot_is_the_kernel_id_and_for_hnd_it_is_not() -> None:
    for order, same in (("NHD", True), ("HND", False)):
        field = token_case(attention((0, 1), 3, 4), "page_major", 4, order=order).layout.field("k")
        row, block = address_form(field, "row"), address_form(field, "block")
        assert (row.multiplier("tokens", 4) == block.multiplier("tokens", 4)) is same


@pytest.mark.parametrize(("form", "percent"), [("row", 1), ("block", 35), ("page", 0)])
def test_what_the_forms_of_a_latent_beside_an_indexer_row_cost(form: FormKind, percent: int) -> None:
    """Rows of 656 and 132 bytes: 35 per cent more bytes a page where both need blocks."""
    indexer = ExtraField("indexer", (132,), "uint8")
    spec = Latent("mla", tuple(range(61)), 528, 128, "float8_e4m3fn", extra=(indexer,))
    layout = page_major(spec, 64, forms=(form,))
    page = (
        plan([spec], tokens=1000, page_size=64, layouts=lambda _spec, _size: layout).subpools["mla"].layout.page_bytes
    )
    payload = 61 * 64 * (656 + 132)
    assert round((page / payload - 1) * 100) == percent


def lean(spec: Spec, page_size: int) -> PoolLayout:
    return page_major(spec, page_size, forms=("page",))


def paired(spec: Spec, page_size: int) -> PoolLayout:
    return page_major(spec, page_size, forms=("row", "page"))


MANY = Attention("full", tuple(range(61)), 1, 64, "bfloat16")
RATIO = 2 * 61 * 16
PAGE = RATIO * 128
MOST = (2**31 - 16) // RATIO + 1  # the last page's last row is the largest id


def test_kernel_ids_past_int32_are_refused_with_rows_bound_and_what_to_lower() -> None:
    pages = 2_000_000
    text = (
        f"row ids of field 'k' in 'full' reach {(pages - 1) * RATIO + 15} with {pages} pages of {PAGE} bytes, past the "
        f"int32 bound {2**31 - 1} (fix: lower the budget so that 'full' has at most {MOST} pages, use another address "
        f"form, or a backend with 64-bit ids)"
    )
    with pytest.raises(AddressBoundError, match=f"^{re.escape(text)}$"):
        plan([MANY], total_bytes=pages * PAGE)


def test_the_bound_is_exact_and_its_advice_works() -> None:
    fits = plan([MANY], total_bytes=MOST * PAGE).subpools["full"].layout
    assert (fits.num_pages - 1) * RATIO + 15 < 2**31
    with pytest.raises(AddressBoundError, match=f"at most {MOST} pages"):
        plan([MANY], total_bytes=(MOST + 1) * PAGE)
    geometry = view_geometry(fits.field("v"), "row", 60, fits.num_pages)
    assert geometry.shape[0] == (MOST - 1) * RATIO + 16 <= 2**31


@pytest.mark.parametrize("kind", ["row", "block"])
def test_the_bound_holds_for_forms_in_use_only(kind: FormKind) -> None:
    big = 2_000_000 * PAGE
    assert plan([MANY], total_bytes=big, layouts=lean).subpools["full"].layout.num_pages == 2_000_000
    assert plan([MANY], total_bytes=big, ids64=True).subpools["full"].layout.num_pages == 2_000_000
    with pytest.raises(AddressBoundError, match=f"^{kind} ids of field 'k'"):
        plan([MANY], total_bytes=big, layouts=lambda spec, size: page_major(spec, size, forms=("page", kind)))


def test_one_field_in_use_by_rows_is_enough_to_be_refused() -> None:
    layout = with_forms(page_major(MANY, 16), {"v": ("row",)}).resize(2_000_000)
    with pytest.raises(AddressBoundError, match=r"^row ids of field 'v'"):
        layout.check_bounds("full")
    with_forms(page_major(MANY, 16), {"v": ("page",)}).resize(2_000_000).check_bounds("full")


def test_page_form_ids_have_a_bound_too() -> None:
    spec = Attention("full", (0,), 1, 1, "uint8")
    most = 2**31 // 16
    plan([spec], total_bytes=most * 32, layouts=lean)
    text = rf"^page ids of field 'k' in 'full' reach {2**31 + 15} with .* so that 'full' has at most {most} pages"
    with pytest.raises(AddressBoundError, match=text):
        plan([spec], total_bytes=(most + 1) * 32, layouts=lean)


def test_an_id_of_exactly_2_to_the_31_is_past_the_bound() -> None:
    """Pages of three tokens: 715,827,883 of them end on that id."""
    spec = Attention("full", (0,), 1, 1, "uint8")
    pages = (2**31 + 1) // 3
    assert pages * 3 - 1 == 2**31
    plan([spec], total_bytes=(pages - 1) * 6, page_size=3, layouts=lean)
    with pytest.raises(AddressBoundError, match=rf"reach {2**31} with .* at most {pages - 1} pages"):
        plan([spec], total_bytes=pages * 6, page_size=3, layouts=lean)


def test_a_token_major_entry_reaches_further() -> None:
    """One id an entry: 2 * 61 times as many pages as when every row has one."""
    layout = plan([MANY], total_bytes=2_000_000 * PAGE, layouts=token_major).subpools["full"].layout
    assert layout.num_pages == 2_000_000
    assert layout.form("k") == layout.form("v") == AddressForm("row", 16)


def test_forms_in_use_are_listed_once_each() -> None:
    layout = plan([MANY], tokens=100, layouts=paired).subpools["full"].layout
    assert layout.address_forms == (AddressForm("row", RATIO), AddressForm("page", 1))
    assert layout.form("v") == AddressForm("row", RATIO)
    assert layout.form("v", "page") == AddressForm("page", 1)


def test_fields_without_forms_of_their_own_use_the_page_form() -> None:
    layout = token_case(latent((0, 1), 4, 2, indexer=3), "page_major", 4).layout
    assert with_forms(layout, {"latent": ("row",)}).kinds("indexer") == ("page",)
