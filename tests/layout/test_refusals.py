"""Layouts that contradict themselves are refused, with the numbers."""

from dataclasses import replace
from typing import Any

import pytest

from layout.cases import attention, conv_case, token_case
from statehal.errors import LayoutError
from statehal.layout import (
    ConvStateLayout,
    FieldLayout,
    PoolLayout,
    conv_window,
    layer_major,
    nz,
    page_major,
    token_major,
)
from statehal.pool import plan
from statehal.spec import Attention, ConvRecurrent

GOOD = FieldLayout("k", "bfloat16", ((0,), (1,)), (2, 4), (8, 2), (3,), (16,), 0, 48, 96)
FULL = Attention("full", (0, 1), 2, 4, "bfloat16")
CONV = ConvRecurrent("conv", (0,), 6, 4, "bfloat16")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"row_strides": (8,)}, "every axis needs one size and one stride"),
        ({"token_strides": (16, 2)}, "every axis needs one size and one stride"),
        ({"row_shape": (), "row_strides": ()}, "row_shape and token_shape need sizes of at least 1"),
        ({"token_shape": (0,)}, "row_shape and token_shape need sizes of at least 1"),
        ({"row_shape": (2, -4)}, "row_shape and token_shape need sizes of at least 1"),
        ({"base": 3}, r"bfloat16: base and strides \(3, 48, 96, 8, 2, 16\) must be multiples of 2 bytes"),
        ({"base": -2}, "must be multiples of 2 bytes and not negative"),
        ({"row_strides": (8, 3)}, "must be multiples of 2 bytes"),
        ({"row_strides": (6, 2)}, "a stride of 6 bytes overlaps 8 bytes of data"),
        ({"row_strides": (8, 0)}, "a stride of 0 bytes overlaps 2 bytes of data"),
        ({"token_strides": (14,)}, "a stride of 14 bytes overlaps 16 bytes of data"),
        ({"token_strides": (0,)}, "a stride of 0 bytes overlaps 2 bytes of data"),
        ({"layer_stride": 40}, "a stride of 40 bytes overlaps 48 bytes of data"),
        ({"layers": ((0,),), "page_stride": 46}, "pages 46 bytes apart hold 48 bytes"),
    ],
)
def test_a_field_that_overlaps_itself_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(LayoutError, match=f"^field 'k'.*{text}"):
        replace(GOOD, **change)


def test_strides_that_interleave_layers_within_rows_are_a_layout() -> None:
    """Layers innermost: every element of layer 0 has that of layer 1 beside it."""
    woven = replace(GOOD, row_strides=(16, 4), token_strides=(32,), layer_stride=2)
    taken = {woven.address(layer, t, (h, d)) for layer in (0, 1) for t in range(3) for h in range(2) for d in range(4)}
    assert sorted(taken) == list(range(0, 96, 2))


def envelope(*fields: FieldLayout, **more: Any) -> PoolLayout:
    return PoolLayout(fields, (), **more)


def test_fields_that_share_bytes_are_refused_by_name() -> None:
    layout = envelope(GOOD, replace(GOOD, name="v", base=30))
    with pytest.raises(LayoutError, match=r"^fields 'k' and 'v' share bytes: one ends at 48, one begins at 30$"):
        layout.check()
    with pytest.raises(LayoutError, match="share bytes"):
        plan([FULL], tokens=4, page_size=3, layouts=lambda spec, size: layout)


def test_one_shared_element_is_found_where_fields_weave() -> None:
    """V lies in the holes that K leaves between its rows; moved by one element it does not."""
    k = replace(GOOD, layers=((0,),), token_strides=(32,), page_stride=128)
    envelope(k, replace(k, name="v", base=16)).check()
    with pytest.raises(LayoutError, match=r"^fields 'k' and 'v' share bytes: one ends at 16, one begins at 14$"):
        envelope(k, replace(k, name="v", base=14)).check()
    with pytest.raises(LayoutError, match=r"^fields 'v' and 'k' share bytes: one ends at 34, one begins at 32$"):
        envelope(k, replace(k, name="v", base=18)).check()


def test_a_field_that_leaves_its_envelope_is_refused() -> None:
    layout = token_case(attention((0, 1), 2, 4), "page_major", 3).layout
    layout.resize(4, 192).check()
    with pytest.raises(LayoutError, match=r"^field 'v' ends 192 bytes into a page of 190$"):
        layout.resize(4, 190).check()
    with pytest.raises(LayoutError, match=r"^field 'v' ends 192 bytes into a page of 128$"):
        layout.at(512).resize(4, 128).check()


def test_a_page_that_does_not_begin_at_0_is_refused_at_planning() -> None:
    """It would end past its region."""
    shifted = page_major(FULL, 3).at(64)
    with pytest.raises(
        LayoutError, match=r"^the layout of 'full' begins at byte 64: expected a page that begins at 0$"
    ):
        plan([FULL], tokens=4, page_size=3, layouts=lambda spec, size: shifted)


@pytest.mark.parametrize("ids", ["virtual", "direct"])
def test_a_layout_of_other_pages_than_were_asked_for_is_refused_at_planning(ids: str) -> None:
    """One virtual id names a page in every sub-pool: of other sizes, tokens would lie in each other's pages."""
    other = replace(FULL, name="other", layers=(9,), ids=ids)  # type: ignore[arg-type]
    sizes = {"full": 4, "other": 8}
    text = r"^the layout of 'other' has pages of 8 tokens: expected 4, as the plan's page_size says$"
    with pytest.raises(LayoutError, match=text):
        plan([FULL, other], tokens=64, page_size=4, layouts=lambda spec, size: page_major(spec, sizes[spec.name]))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: envelope(), r"^a layout needs fields of distinct names: got \[\]$"),
        (lambda: envelope(GOOD, GOOD), r"^a layout needs fields of distinct names: got \['k', 'k'\]$"),
        (
            lambda: PoolLayout((GOOD,), (("v", ("row",)),)),
            r"^forms are given for \['v'\], which are no fields: \['k'\]$",
        ),
        (
            lambda: envelope(GOOD, replace(GOOD, name="v", token_shape=(1,))),
            r"^fields of one layout need one page size: \[\('k', 3\), \('v', 1\)\]$",
        ),
        (
            lambda: envelope(GOOD, replace(GOOD, name="v", base=96, page_stride=192)),
            "^fields of one envelope need one page_stride$",
        ),
        (lambda: envelope(GOOD).field("v"), r"^no field 'v': this layout has \['k'\]$"),
        (lambda: envelope(GOOD, num_pages=0), "^num_pages=0: expected at least 1, the sink$"),
        (lambda: envelope(GOOD).resize(-1), "^num_pages=-1: expected at least 1, the sink$"),
        (lambda: conv_window(FULL), "^spec 'full' is a Attention: conv_window lays out ConvRecurrent$"),
        (lambda: page_major(FULL, 4, order="DHN"), r"^order='DHN': expected 'NHD' or 'HND'$"),  # type: ignore[arg-type]
        (lambda: page_major(FULL, 4, align=0), "^align=0: expected at least 1$"),
        (lambda: token_major(FULL, 4, align=-8), "^align=-8: expected at least 1$"),
        (
            lambda: nz(Attention("full", (0,), 2, 24, "bfloat16"), 4),
            r"^field 'k' has rows of 24: NZ needs a multiple of 16 \(fix: use page_major\)$",
        ),
        (lambda: ConvStateLayout("rows"), "^window_order='rows': expected 'rows_first' or 'channels_first'$"),  # type: ignore[arg-type]
        (lambda: ConvStateLayout(protocol="shift"), "^protocol='shift': expected 'ring', 'offset' or 'rollback'$"),  # type: ignore[arg-type]
        (lambda: ConvStateLayout(channel_multiple=0), "^channel_multiple=0, align=1: expected at least 1$"),
    ],
)
def test_what_a_layout_is_refused_with(make: Any, text: str) -> None:
    with pytest.raises(LayoutError, match=text):
        make()


@pytest.mark.parametrize("make", [page_major, token_major, layer_major, nz])
def test_slots_have_a_constructor_of_their_own(make: Any) -> None:
    with pytest.raises(LayoutError, match=r"^spec 'conv' keeps slots, not tokens \(fix: use conv_window\)$"):
        make(CONV, 4)


@pytest.mark.parametrize("make", [page_major, token_major, layer_major, nz])
@pytest.mark.parametrize("page_size", [0, -4, 2.5, "4", None])
def test_a_page_size_that_is_no_positive_integer_is_refused(make: Any, page_size: object) -> None:
    spec = Attention("full", (0,), 2, 16, "bfloat16")
    with pytest.raises(LayoutError, match=rf"^page_size={page_size!r} for 'full': expected an integer of at least 1$"):
        make(spec, page_size)


def test_a_cursor_and_a_row_may_not_have_one_name() -> None:
    case = conv_case((0,), 6, 4)
    assert [field.name for field in case.layout.fields] == ["conv", "cursor"]
    assert case.layout.conv == ConvStateLayout()
