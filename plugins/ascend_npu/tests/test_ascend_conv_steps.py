"""Verify and commit equal sequential decode, over random rounds, on slots in a bigger pool, by integers."""

from collections.abc import Callable

import pytest
import torch
from ascend_rig import Requests, joined, watched_operator

from statehal.errors import LayoutError
from statehal.layout import ConvStateLayout, PoolLayout
from statehal_ascend_npu.conv.slots import dense_form

OPERATORS = ("current", "older", "custom")
PROTOCOLS = ("offset", "rollback")


def verify(run: Requests, *, ragged: bool) -> None:
    """One step of up to D tokens a request, a padding request among them, and its commit."""
    drafts, count = run.spec.verify_tokens, len(run.said)
    sizes = [run.chance.randint(1, drafts) if ragged else drafts for _ in range(count + 1)]
    order = run.chance.sample(range(count + 1), count + 1)  # the last is padding, wherever it comes
    rows = {request: run.rows(sizes[request]) for request in order}
    slots = joined(*(run.slots[request : request + 1] for request in order))
    x = run.x([row for request in order for row in rows[request]])
    loc = torch.tensor([0, *(sizes[request] for request in order)]).cumsum(0)
    accepted = [run.chance.randint(1, sizes[request]) for request in order]
    for layer in run.spec.layers:
        y = run.conv.verify(layer, x, slots, query_start_loc=loc if ragged else None)
        due = []
        for request in order:
            blank = [[0] * run.spec.channels] * sizes[request]
            due += blank if request == count else run.due(layer, request, rows[request])
        assert y.tolist() == due, (layer, order, sizes)
    run.conv.commit(slots, torch.tensor(accepted))
    for request, kept in zip(order, accepted, strict=True):
        if request < count:
            run.said[request] += rows[request][:kept]


def decode(run: Requests) -> None:
    """One token a request, and its commit."""
    count = len(run.said)
    rows = run.rows(count + 1)
    for layer in run.spec.layers:
        y = run.conv.decode(layer, run.x(rows), run.slots)
        due = [run.due(layer, request, rows[request : request + 1])[0] for request in range(count)]
        assert y.tolist() == [*due, [0] * run.spec.channels]
    run.conv.commit(run.slots, torch.ones(count + 1, dtype=torch.int32))
    for request in range(count):
        run.said[request].append(rows[request])


def prefill(run: Requests) -> None:
    """A chunk of any length a request, none included, that goes on from what was said."""
    count = len(run.said)
    sizes = [run.chance.choice([0, 1, 2, 5]) for _ in range(count)]
    rows = [run.rows(size) for size in sizes]
    loc = torch.tensor([0, *sizes]).cumsum(0)
    x = run.x([row for some in rows for row in some])
    for layer in run.spec.layers:
        y = run.conv.prefill(layer, x, loc, run.slots[:count], torch.ones(count, dtype=torch.bool))
        assert y.tolist() == [row for request in range(count) for row in run.due(layer, request, rows[request])]
    run.conv.commit(run.slots[:count], torch.ones(count, dtype=torch.int64))
    for request in range(count):
        run.said[request] += rows[request]


def long_run(width: int, drafts: int, rounds: int, seed: int) -> None:
    run = Requests(width, drafts, seed=seed)
    prefill(run)
    for _ in range(rounds):
        verify(run, ragged=run.chance.random() < 0.5)
        if run.chance.random() < 0.2:
            prefill(run)
        run.check_state()
    decode(run)
    decode(run)
    run.check_state()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("width", [2, 3, 4])
def test_drafts_leave_what_sequential_decode_leaves(
    operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch, width: int, operator: str, protocol: str
) -> None:
    operators(operator)
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_CONV", protocol)
    for drafts in range(1, 9):
        long_run(width, drafts, 3, seed=100 * width + drafts)


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("width", [2, 3, 4])
def test_long_runs(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch, width: int, protocol: str) -> None:
    operators("current")
    monkeypatch.setenv("STATEHAL_ASCEND_NPU_CONV", protocol)
    for drafts in range(1, 9):
        for seed in range(3):
            long_run(width, drafts, 40, seed)


@pytest.mark.parametrize(
    ("width", "drafts", "operator", "modes"),
    [
        (4, 4, "current", ["prefill", "update", "update"]),
        (4, 4, "custom", ["prefill", "update", "update"]),
        (4, 1, "current", ["prefill", "update", "update"]),
        (3, 1, "current", ["prefill", "update", "update"]),
        (3, 4, "current", ["prefill", "gathered", "gathered"]),  # width 3 does not heed what was accepted
        (4, 4, "older", ["prefill", "gathered", "gathered"]),  # a build that only prefills
        (5, 4, "current", []),  # no operator computes width 5
    ],
)
def test_the_operator_works_in_place_where_it_has_a_mode(
    operators: Callable[..., None], width: int, drafts: int, operator: str, modes: list[str]
) -> None:
    operators(operator)
    run = Requests(width, drafts, layers=(0,))
    with watched_operator() as seen:
        run.conv.prefill(0, run.x(run.rows(4)), torch.tensor([0, 4]), run.slots[:1])
        run.conv.commit(run.slots[:1], torch.tensor([1]))
        run.conv.verify(0, run.x(run.rows(drafts)), run.slots[:1])
        run.conv.commit(run.slots[:1], torch.tensor([1]))
        run.conv.decode(0, run.x(run.rows(1)), run.slots[:1])
    whole = run.sub.view("conv", 0, "row")
    found = []
    for state, step in seen:
        mine = state.data_ptr() == whole.data_ptr()
        assert not mine or state.shape == whole.shape, "the layer is given as it lies in the pool, not copied"
        found.append("update" if step.update else "prefill" if mine else "gathered")
        assert mine != (found[-1] == "gathered")
    assert found == modes


def test_weights_of_another_dtype_are_not_rounded(operators: Callable[..., None]) -> None:
    """The operator takes one dtype: a layer whose weights have another is convolved by torch, in every method."""
    operators("current")
    run = Requests(4, 2, layers=(0,), weight="float32")
    with watched_operator() as seen:
        prefill(run)
        verify(run, ragged=False)
        decode(run)
    assert not seen
    third = torch.full((16, 4), 1 / 3)
    run.conv.prepare(0, third)
    x = torch.full((1, 16), 3.0, dtype=torch.bfloat16)
    y = run.conv.prefill(0, x, torch.tensor([0, 1]), run.slots[:1])
    assert y.tolist() == [[1.0] * 16]  # 1/3 in bfloat16 is 0.33398: three of them give 1.0019, or 1.0 in bfloat16
    exact = torch.full((1, 16), 300.0, dtype=torch.bfloat16)
    y = run.conv.prefill(0, exact, torch.tensor([0, 1]), run.slots[:1])
    assert y.tolist() == [[100.0] * 16], "rounded weights would give 100.5"


def test_weights_are_followed(operators: Callable[..., None]) -> None:
    """A reload in place, then another dtype."""
    operators("current")
    run = Requests(4, 1, layers=(0,))
    weight = torch.ones(16, 4, dtype=torch.bfloat16)
    run.conv.prepare(0, weight)
    x, loc = torch.ones(4, 16, dtype=torch.bfloat16), torch.tensor([0, 4])

    def last() -> float:
        return float(run.conv.prefill(0, x, loc, run.slots[:1])[-1, 0])

    with watched_operator() as seen:
        assert last() == 4
        weight.mul_(2)
        assert last() == 8
        assert len(seen) == 2
        weight.data = torch.full((16, 4), 0.5)  # float32: torch computes it
        assert last() == 2
        assert len(seen) == 2
        weight.data = torch.full((16, 4), 3.0, dtype=torch.bfloat16)
        assert last() == 12
        assert len(seen) == 3


def test_channels_are_padded_to_what_the_operator_takes(operators: Callable[..., None]) -> None:
    """Window and weights once; inputs, which are not ours, at each call."""
    operators("current")
    run = Requests(4, 3, channels=5, layers=(0,))
    assert run.sub.view("conv", 0, "row").shape[1:] == (5, 16)
    with watched_operator() as seen:
        for _ in range(3):
            verify(run, ragged=True)
    assert len(seen) == 3
    run.check_state()


def test_a_window_that_is_not_dense_is_refused(operators: Callable[..., None]) -> None:
    operators("current")
    run = Requests(4, 2, layers=(0,))

    class Sub:
        """The same sub-pool, as an overriding plugin might have laid it out."""

        name = "gdn"

        def __init__(self, conv: ConvStateLayout) -> None:
            from statehal.layout import conv_window

            made = conv_window(run.spec, conv)
            self.layout: PoolLayout = made.resize(2)

        def view(self, field: str, layer: int, form: str) -> torch.Tensor:
            return run.sub.view(field, layer, "page")[:, 0]

    with pytest.raises(
        LayoutError, match="laid out in the forms \\('page',\\): the conv operator needs each layer dense"
    ):
        dense_form(Sub(ConvStateLayout(protocol="offset")))  # type: ignore[arg-type]
    wide = ConvStateLayout(protocol="offset", forms=("row",), align=1)
    spec_window = Sub(wide)
    spec_window.layout = spec_window.layout.resize(2, page_stride=spec_window.layout.field("conv").row_bytes * 20)
    with pytest.raises(LayoutError, match="which is not dense: the conv operator would read and write rows of others"):
        dense_form(spec_window)  # type: ignore[arg-type]


def test_a_planned_window_is_a_whole_number_of_entries(operators: Callable[..., None]) -> None:
    """A slot is every r-th entry of a layer: the pool's pages begin a whole number of windows apart."""
    operators("current")
    run = Requests(4, 4, layers=(4, 1))
    field = run.sub.layout.field("conv")
    assert field.page_stride % field.row_bytes == 0
    ratio = field.page_stride // field.row_bytes
    assert ratio > 1, "there are other layers, states and sub-pools beside it"
    for layer in (4, 1):
        dense = run.sub.view("conv", layer, "row")
        assert dense.is_contiguous()
        assert dense.shape == ((run.sub.layout.num_pages - 1) * ratio + 1, 6, 16)
        for slot in (1, 2):
            assert dense[slot * ratio].data_ptr() - run.pool.buffer.data_ptr() == field.address(layer, slot)


@pytest.mark.parametrize("loc", [[0, 9, 2], [0, 3, 1], [-4, 2, 3], [2, 1, 0]], ids=str)
def test_bounds_out_of_range_lead_the_operator_nowhere(operators: Callable[..., None], loc: list[int]) -> None:
    """With checking off: the model raises where a sequence leaves the tokens or falls."""
    operators("current")
    run = Requests(4, 2, layers=(0,))
    x, bounds = run.x(run.rows(3)), torch.tensor(loc)
    sink = run.sub.view("conv", 0, "row")[0]
    run.conv.prefill(0, x, bounds, run.slots[:2])
    run.conv.commit(run.slots[:2], torch.tensor([1, 1]))
    run.conv.verify(0, x, run.slots[:2], query_start_loc=bounds)
    assert not sink.any()
