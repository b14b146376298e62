"""The integers of a copy plan, executed by plain loops; and the arithmetic of digits that plans are made with."""

from collections.abc import Callable
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portability.images import HAL, fill_tokens, make_pool, payload, physical, raw, scattered
from portability.models import MODELS, Model, layouts_of
from statehal.errors import LayoutError
from statehal.portability import CanonicalState, Grouping, RankSubPool
from statehal.portability.axes import Axes, match, merge, place, split, window
from statehal.spec import Attention

TOKENS = 16
CASES = [
    pytest.param(model, layout, size, id=f"{model} {layout} {size}")
    for model in MODELS
    if model.spec.kind == "tokens"
    for size in (4, 16)
    for layout in layouts_of(model, size)
]


@pytest.mark.parametrize(("model", "layout", "page_size"), CASES)
def test_runs_of_source_destination_and_length(model: Model, layout: str, page_size: int) -> None:
    pool = make_pool([model.spec], layout, page_size, tokens=64)
    sub = pool[model.spec.name]
    pages = scattered(pool, sub.name, TOKENS)
    fill_tokens(sub, model, pages, TOKENS)
    grouping = Grouping.of([model.spec], object_tokens=TOKENS, layers=2, head_groups=2)
    room = 192 if page_size == 4 else 0
    state = CanonicalState(HAL, RankSubPool(sub, [model.spec], grouping=grouping), room=room)
    image, numbers = raw(sub.buffer), physical(sub, pages)
    buffer, written = bytearray(state.object.nbytes), [0] * state.object.nbytes
    for move in state.plan:
        units, a_page = move.source.units, len(move.source.units.places)
        for number in range(TOKENS * a_page // page_size):
            start = numbers[number // a_page] * units.page_stride + units.places[number % a_page]
            for source, destination, length in move.runs():
                assert source % move.word == destination % move.word == length % move.word == 0
                destination += number * move.destination.units.step
                buffer[destination : destination + length] = image[source + start : source + start + length]
                for at in range(destination, destination + length):
                    written[at] += 1
    for part, at in zip(state.object.parts, state.object.offsets, strict=True):
        wanted = payload(model, part.as_dict(), 0, TOKENS, head_groups=min(2, max(row.heads for row in model.rows)))
        assert bytes(buffer[at : at + part.nbytes]) == wanted
        assert written[at : at + part.nbytes] == [1] * part.nbytes
        assert written[at - room : at] == [0] * room
    assert sum(written) == sum(part.nbytes for part in state.object.parts)


@pytest.mark.parametrize("room", [0, 64])
@pytest.mark.parametrize(
    ("layers", "of_a_group", "head_groups", "count"),
    [(8, 4, 4, 1), (9, 4, 1, 2), (9, 4, 4, 2), (10, 4, 2, 2), (5, 1, 4, 1), (3, 4, 2, 1)],
)
def test_a_last_group_of_fewer_layers_costs_one_more_move(
    layers: int, of_a_group: int, head_groups: int, count: int, room: int
) -> None:
    spec = Attention("full", tuple(range(layers)), 4, 16, "bfloat16")
    pool = make_pool([spec], "NHD", 4, tokens=64)
    grouping = Grouping.of([spec], object_tokens=TOKENS, layers=of_a_group, head_groups=head_groups)
    state = CanonicalState(HAL, RankSubPool(pool["full"], [spec], grouping=grouping), room=room)
    assert len(state.plan) <= count


sizes = st.lists(st.sampled_from((1, 2, 3, 4, 8)), min_size=1, max_size=4)


def digits_of(data: st.DataObject, total: int | None = None) -> Axes:
    """Digits whose strides are drawn; of that count, if given."""
    chosen = data.draw(sizes) if total is None else []
    while total is not None and total > 1:
        chosen.append(data.draw(st.sampled_from([one for one in range(2, total + 1) if total % one == 0])))
        total //= chosen[-1]
    return tuple((size, data.draw(st.integers(1, 1000))) for size in chosen)


def addresses(axes: Axes) -> list[int]:
    """Offset of every index, by counting up the digits."""
    found = [0]
    for size, stride in axes:
        found = [before + digit * stride for before in found for digit in range(size)]
    return found


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_digits_are_cut_matched_and_merged_without_changing_an_address(data: st.DataObject) -> None:
    left = digits_of(data)
    total = prod(size for size, _ in left)
    assert [place(left, index) for index in range(total)] == addresses(left)
    assert addresses(merge(left)) == addresses(left)
    right = digits_of(data, total)
    try:
        pairs = match(left, right, "an index")
    except LayoutError as error:
        assert "do not match" in str(error)
    else:
        assert addresses(tuple((size, a) for size, a, _ in pairs)) == addresses(left)
        assert addresses(tuple((size, b) for size, _, b in pairs)) == addresses(right)
    inner = data.draw(st.sampled_from([one for one in range(1, total + 1) if total % one == 0]))
    try:
        outer, rest = split(left, inner, "an index")
    except LayoutError as error:
        assert f"do not part at {inner}" in str(error)
    else:
        assert addresses((*outer, *rest)) == addresses(left)
        assert prod(size for size, _ in rest) == inner
    start = data.draw(st.integers(0, total - inner))
    try:
        offset, some = window(left, start, inner, "an index")
    except LayoutError:
        return
    assert [offset + one for one in addresses(some)] == addresses(left)[start : start + inner]


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        (lambda: split(((2, 8), (3, 2)), 2, "a row"), r"^a row is written in digits \(2, 3\), which do not part at 2$"),
        (lambda: split(((2, 8), (3, 2)), 12, "a row"), r"^a row is written in digits \(2, 3\): expected at least 12$"),
        (
            lambda: match(((4, 2),), ((6, 2),), "a row"),
            r"^a row is written in digits \(4,\) and \(6,\): they do not match$",
        ),
        (lambda: match(((4, 2),), ((2, 2),), "a row"), r"^a row is written in digits \(4,\) and \(2,\): sizes differ$"),
        (lambda: window(((4, 2),), 3, 2, "heads"), r"^heads is written in digits \(4,\): 5 are asked for$"),
        (
            lambda: window(((2, 9), (2, 2)), 1, 2, "heads"),
            r"^heads is written in digits \(2, 2\): 1 to 3 are no run of them$",
        ),
    ],
)
def test_digits_that_do_not_fit_are_refused(attempt: Callable[[], object], text: str) -> None:
    with pytest.raises(LayoutError, match=text):
        attempt()
