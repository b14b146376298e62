"""``statehal_pool_layout``: the rows of a token spec, as the hook answers and as the planner places them."""

from typing import Any

from statehal.errors import AddressBoundError
from statehal.hookspecs import IDS64
from statehal.layout import INT32_IDS, PoolLayout
from statehal.testing.answers import layout_answer
from statehal.testing.check import check
from statehal.testing.layout_cases import FEATURES, LayoutCase, cases
from statehal.testing.oracles.layouts import ONE, field_bytes, form_objection, held, numbered, payload, rows_of
from statehal.testing.reach import reaches
from statehal.testing.target import Target


def _answer(target: Target, case: LayoutCase) -> tuple[str, PoolLayout]:
    name, answer = layout_answer(target, case.spec, case.page_size)
    assert isinstance(answer, PoolLayout), f"{name!r} answered {type(answer).__name__} instead of a PoolLayout"
    return name, answer


@check("pool_layout", needs=("layout.tokens",), cases=cases, features=FEATURES)
def check_fields_hold_the_rows_of_the_spec(target: Target, case: LayoutCase) -> None:
    """A layout has a field for each kind of row, of its dtype, layers, elements and page size, and begins at byte 0."""
    name, layout = _answer(target, case)
    wanted = rows_of(case.spec, case.page_size)
    found = {field.name: held(field) for field in layout.fields}
    assert found == wanted, f"{name!r} laid out {found}, expected {wanted}"
    assert layout.num_pages == 1, f"{name!r} answered for {layout.num_pages} pages, expected the one that is asked for"
    origin = min(field.base for field in layout.fields)
    assert origin == 0, f"{name!r}: the first field begins at byte {origin}"


@check("pool_layout", needs=("layout.tokens",), cases=cases, features=FEATURES)
def check_no_two_rows_share_a_byte(target: Target, case: LayoutCase) -> None:
    """No byte of a pool belongs to two fields, layers, tokens or elements."""
    name, layout = _answer(target, case)
    pages = (0,) if layout.order == "page" else (0, 1, 2)
    if layout.order == "layer":
        layout = layout.resize(3)
    taken: list[tuple[str, int]] = []
    for field in layout.fields:
        for page in pages:
            mine = field_bytes(field, page)
            wanted = payload(field)
            assert mine.bit_count() == wanted, (
                f"{name!r}: field {field.name!r} needs {wanted} bytes in page {page} and takes {mine.bit_count()}, so "
                f"elements of it share bytes: {field}"
            )
            for other, theirs in taken:
                both = mine & theirs
                assert not both, (
                    f"{name!r}: {field.name!r} of page {page} and {other} share {both.bit_count()} bytes, the first is "
                    f"byte {(both & -both).bit_length() - 1}"
                )
            taken.append((f"{field.name!r} of page {page}", mine))


@check("pool_layout", needs=("layout.tokens",), cases=cases, features=FEATURES)
def check_pages_stay_in_their_envelope(target: Target, case: LayoutCase) -> None:
    """All rows of a page lie in the ``page_stride`` bytes that begin with it, and in the sub-pool's region."""
    name, layout = _answer(target, case)
    if layout.order == "page":
        for field in layout.fields:
            end = field_bytes(field).bit_length()
            assert end <= field.page_stride, (
                f"{name!r}: field {field.name!r} ends {end} bytes into a page of {field.page_stride}"
            )
    sub = _pool(target, case)["rows"]
    planned, region = sub.layout, sub.plan.region
    stop = region.offset + region.total_bytes
    for page in {0, 1, planned.num_pages - 1}:
        for field in planned.fields:
            mine = field_bytes(field, page)
            first, end = (mine & -mine).bit_length() - 1, mine.bit_length()
            least, most = region.offset, stop
            if planned.order == "page":
                least += page * field.page_stride
                most = least + field.page_stride
            assert least <= first, (
                f"{name!r}: {field.name!r} of page {page} begins at byte {first}, its page at {least}"
            )
            assert end <= most <= stop, (
                f"{name!r}: {field.name!r} of page {page} ends at byte {end}, its page at {most}, its region at {stop}"
            )


@check("pool_layout", needs=("layout.tokens",), cases=cases, features=FEATURES)
def check_alignment_is_kept(target: Target, case: LayoutCase) -> None:
    """Fields of page 0 and every page begin at multiples of ``align``, elements at multiples of their size."""
    name, layout = _answer(target, case)
    planned = _pool(target, case)["rows"].layout
    assert planned.align == layout.align, f"{name!r} asked for {layout.align} and the plan keeps {planned.align}"
    for stage, one in (("answered", layout), ("planned", planned)):
        for field in one.fields:
            where = f"{name!r}: field {field.name!r}, {stage}"
            assert field.base % one.align == 0, f"{where}: begins at byte {field.base}, no multiple of {one.align}"
            steps = (field.base, field.layer_stride, *field.token_strides, *field.row_strides, field.page_stride)
            odd = [step for step in steps if step % len(ONE[field.dtype])]
            assert not odd, f"{where}: {odd} are no multiples of an element of {field.dtype}"
    if planned.order == "page":
        stride = planned.fields[0].page_stride
        assert stride % planned.align == 0, f"{name!r}: pages {stride} bytes apart lose the alignment {planned.align}"


@check("pool_layout", needs=("layout.tokens",), cases=cases, features=FEATURES)
def check_every_form_in_use_exists(target: Target, case: LayoutCase) -> None:
    """A field has every address form that its layout names, before and after the planner has widened its pages."""
    name, layout = _answer(target, case)
    _judge_forms(name, layout, planned=False)
    _judge_forms(name, _pool(target, case)["rows"].layout, planned=True)


def _judge_forms(name: str, layout: PoolLayout, *, planned: bool) -> None:
    for field in layout.fields:
        for kind in dict(layout.forms).get(field.name, ("page",)):
            why = form_objection(field, kind, planned=planned)
            assert not why, f"{name!r}: field {field.name!r} has no {kind} form: {why}"


@check("pool_layout", needs=("layout.tokens", "memory.translate"), cases=cases, features=FEATURES)
def check_ids_and_views_reach_the_addresses(target: Target, case: LayoutCase) -> None:
    """The kernel id of a token, in the view of each form in use, reaches the byte that the affine map gives."""
    pool = _pool(target, case)
    wrong = reaches(target, pool, "rows", case.seed)
    assert not wrong, wrong


@check("pool_layout", needs=("layout.tokens",), cases=cases, features=("Latent", "Attention", "page size 3"))
def check_ids_past_int32_are_refused_at_planning(target: Target, case: LayoutCase) -> None:
    """A plan whose ids in a form in use reach ``2**31`` is refused, unless the backend claims ``ids64``."""
    plan, size = target.binding().plan, case.page_size
    spec, last = case.spec, size - 1

    def largest(tokens: int) -> int:
        layout = plan([spec], tokens=tokens, page_size=size).subpools["rows"].layout
        used = [(field, kind) for field in layout.fields for kind in dict(layout.forms).get(field.name, ("page",))]
        return max(numbered(field, kind, layout.num_pages - 1, last) for field, kind in used)

    pages = (INT32_IDS - size) * size // (largest(size) + 1 - size)  # ids grow by so much a page
    fits = (pages // size - 1) * size
    top = largest(fits)
    assert top < INT32_IDS, f"a plan with ids up to {top} was accepted"
    try:
        top = largest(fits + 2 * size)
    except AddressBoundError:
        assert IDS64 not in target.info.capabilities, f"{fits + 2 * size} tokens are refused, and ids64 is claimed"
    else:
        assert IDS64 in target.info.capabilities, f"a plan with ids up to {top} was accepted, and ids64 is not claimed"


def _pool(target: Target, case: LayoutCase) -> Any:
    """Two pages or more, whatever slabs cost."""
    return target.pool(
        [case.spec, *case.others], tokens=2 * case.page_size, requests=1, page_size=case.page_size, waste_limit=0.9
    )
