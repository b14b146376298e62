"""The contract model is held against the definition, and its own faults are noticed."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_contract_model import conv, kv
from npu_contract_model.conv import PREFILL, UPDATE, Call, causal_conv1d

CHANNELS = 16
Check = Callable[[], None]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Small whole numbers, whose sums of products are exact in bfloat16's range of whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).to(torch.bfloat16)


def call(
    starts: list[int], index: list[int], *, width: int = 4, mode: int = PREFILL, rows: int = 6, entries: int = 5,
    initial: list[bool] | None = None, accepted: list[int] | None = None, seed: int = 0,
) -> Call:  # fmt: skip
    return Call(
        x=numbers(starts[-1], CHANNELS, seed=seed),
        weight=numbers(width, CHANNELS, seed=seed + 1),
        state=numbers(entries, rows, CHANNELS, seed=seed + 2),
        bias=numbers(CHANNELS, seed=seed + 3),
        starts=torch.tensor(starts),
        index=torch.tensor(index),
        initial=None if initial is None else torch.tensor(initial),
        accepted=None if accepted is None else torch.tensor(accepted),
        silu=False,
        pad=-1,
        mode=mode,
    )


def by_definition(given: Call, number: int, history: Tensor) -> Tensor:
    """Outputs of one sequence, one sum at a time, over history and tokens laid end to end."""
    assert given.starts is not None
    assert given.bias is not None
    begin, end = int(given.starts[number]), int(given.starts[number + 1])
    every = torch.cat([history, given.x[begin:end]]).double()
    width = given.weight.shape[0]
    outputs = torch.zeros(end - begin, CHANNELS, dtype=torch.float64)
    for token in range(end - begin):
        for channel in range(CHANNELS):
            total = float(given.bias[channel])
            for tap in range(width):
                total += float(every[token + tap, channel]) * float(given.weight[tap, channel])
            outputs[token, channel] = total
    return outputs


def check_a_prefill_is_the_convolution_of_its_history_and_tokens() -> None:
    for width in (2, 3, 4):
        given = call([0, 1, 6, 8], [3, 0, 1], width=width, initial=[True, False, True], seed=width)
        before = given.state.clone()
        y = causal_conv1d(given)
        for number, entry in enumerate([3, 0, 1]):
            begin, end = (0, 1, 6, 8)[number : number + 2]
            history = before[entry, : width - 1] if number != 1 else torch.zeros(width - 1, CHANNELS)
            due = by_definition(given, number, history)
            assert torch.equal(y[begin:end].double(), due), (width, number)
            every = torch.cat([history.to(torch.bfloat16), given.x[begin:end]])
            assert torch.equal(given.state[entry, : width - 1], every[-(width - 1) :]), (width, number)
            assert torch.equal(given.state[entry, width - 1 :], before[entry, width - 1 :])
        untouched = [2, 4]
        assert torch.equal(given.state[untouched], before[untouched])


def check_an_update_goes_on_from_the_accepted_row_and_writes_from_row_0() -> None:
    for accepted in (1, 2, 3, 4, 9):  # past the window's end it is clamped
        given = call([0, 3, 4], [2, 4], mode=UPDATE, accepted=[accepted, 1], seed=accepted)
        before = given.state.clone()
        y = causal_conv1d(given)
        for number, (entry, first) in enumerate([(2, min(accepted - 1, 3)), (4, 0)]):
            begin, end = (0, 3, 4)[number : number + 2]
            history = before[entry, first : first + 3]
            assert torch.equal(y[begin:end].double(), by_definition(given, number, history)), (accepted, number)
            kept = torch.cat([history[1:], given.x[begin:end]])
            assert torch.equal(given.state[entry, : len(kept)], kept), (accepted, number)
            assert torch.equal(given.state[entry, len(kept) :], before[entry, len(kept) :])


def check_other_widths_ignore_what_was_accepted() -> None:
    given = call([0, 1], [1], width=3, mode=UPDATE, accepted=[3])
    before = given.state.clone()
    assert torch.equal(causal_conv1d(given).double(), by_definition(given, 0, before[1, :2]))


def check_rows_that_nobody_computes_are_nan() -> None:
    given = call([1, 3, 3, 5], [-1, 2, 0], initial=[True, True, True])
    given = replace(given, x=numbers(7, CHANNELS))
    before = given.state.clone()
    y = causal_conv1d(given)
    assert [bool(row.isnan().all()) for row in y] == [True, True, True, False, False, True, True]
    assert torch.equal(given.state[[1, 2, 3, 4]], before[[1, 2, 3, 4]]), "a padded or empty sequence changed a window"


def check_accesses_out_of_bounds_are_errors() -> None:
    for given in (
        call([0, 1], [5]),
        call([0, 1], [-2]),
        call([0, 5], [1], mode=UPDATE, accepted=[1]),  # 2 + 5 rows do not fit a window of 6
    ):
        with pytest.raises(IndexError):
            causal_conv1d(given)
    given = call([0, 2], [1])
    with pytest.raises(IndexError, match="leaves the 1 tokens"):
        causal_conv1d(replace(given, x=given.x[:1]))
    with pytest.raises(IndexError, match="falls"):
        causal_conv1d(replace(given, starts=torch.tensor([2, 0])))


def check_what_the_operator_does_not_take_is_an_error() -> None:
    given = call([0, 2], [1])
    wide = numbers(2, 24)
    odd = {
        "channels": {"x": wide, "weight": numbers(4, 24), "state": numbers(5, 6, 24), "bias": numbers(24)},
        "width": {"weight": numbers(5, CHANNELS)},
        "dtype": {"x": given.x.half()},
        "bias's dtype": {"bias": numbers(CHANNELS).float()},
        "float32": {
            name: tensor.float() for name, tensor in vars(given).items() if name in ("x", "weight", "state", "bias")
        },
        "strides": {"state": numbers(5, 6, 2 * CHANNELS)[..., :CHANNELS]},
        "a short window": {"state": numbers(5, 2, CHANNELS)},
        "too few entries": {"starts": torch.tensor([0, 1, 2])},
    }
    for name, change in odd.items():
        taken = True
        try:
            causal_conv1d(replace(given, **change))
        except ValueError:
            taken = False
        assert not taken, name


def check_silu_is_applied_last() -> None:
    given = replace(call([0, 2], [1]), silu=True)
    due = by_definition(given, 0, torch.zeros(3, CHANNELS))
    wanted = torch.tensor([[value / (1 + math.exp(-value)) for value in row] for row in due.tolist()])
    assert torch.allclose(causal_conv1d(given).float(), wanted, rtol=2**-7, atol=1e-30)


def check_rows_of_three_axes_are_a_sequence_each() -> None:
    given = call([0, 2, 4], [3, 1], initial=[True, True])
    batched = replace(given, x=given.x.view(2, 2, CHANNELS), starts=None, state=given.state.clone())
    assert torch.equal(causal_conv1d(given), causal_conv1d(batched).view(4, CHANNELS))
    assert torch.equal(given.state, batched.state)


def check_kv_rows_lie_at_their_slots() -> None:
    pages, size, heads, dim = 3, 4, 2, 32
    new, slots = numbers(5, heads, dim), torch.tensor([7, 0, 11, 3, 4], dtype=torch.int32)
    cache = torch.full((pages, size, heads, dim), 9).to(torch.bfloat16)
    kv.norm(new, cache, slots)
    pieces = torch.full((pages, heads * dim // 16, size, 16), 9).to(torch.bfloat16)
    kv.fractal(new, pieces, slots)
    for page in range(pages):
        for place in range(size):
            token = next((n for n, slot in enumerate(slots) if slot == page * size + place), None)
            for d in range(heads * dim):
                due = 9.0 if token is None else float(new[token, d // dim, d % dim])
                assert float(cache[page, place, d // dim, d % dim]) == due
                assert float(pieces[page, d // 16, place, d % 16]) == due


def check_kv_slots_out_of_bounds_are_errors() -> None:
    for slot in (-1, 12):
        slots = torch.tensor([slot], dtype=torch.int32)
        with pytest.raises(IndexError):
            kv.norm(numbers(1, 2, 16), numbers(3, 4, 2, 16), slots)
        with pytest.raises(IndexError):
            kv.fractal(numbers(1, 2, 16), numbers(3, 2, 4, 16), slots)
        with pytest.raises(IndexError):
            kv.scatter(numbers(1, 2, 16), numbers(12, 2, 16), slots[:, None])


CHECKS: dict[str, Check] = {name: one for name, one in globals().items() if name.startswith("check_")}


@pytest.mark.parametrize("name", CHECKS)
def test_the_model_holds(name: str) -> None:
    CHECKS[name]()


def _swapped(name: str, make: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """A fault in one function of the model."""
    return lambda patch: patch.setattr(conv, name, make(getattr(conv, name)))


def _taps_reversed(original: Any) -> Any:
    return lambda window, taps, bias, silu: original(window[::-1], taps, bias, silu=silu)


def _bias_last(original: Any) -> Any:
    return lambda window, taps, bias, silu: original(window, taps, [0.0] * len(bias), silu=silu)


def _first_row(original: Any) -> Any:
    return lambda call, number, width: (0, original(call, number, width)[1])


def _always_known(original: Any) -> Any:
    return lambda call, number, width: (original(call, number, width)[0], True)


def _every_width(original: Any) -> Any:
    return lambda call, width: call.accepted is not None


def _no_write_back(original: Any) -> Any:
    return lambda *arguments: None


def _shifted(original: Any) -> Any:
    return lambda state, x, entry, first, begin, end, width: original(state, x, entry, 0, begin, end, width)


def _lenient(original: Any) -> Any:
    return lambda call: None


def _wrapping(original: Any) -> Any:
    return lambda call, number: int(call.index[number]) % call.state.shape[0]


def _zeroed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conv, "UNWRITTEN", 0.0)


def _transposed_nz(patch: pytest.MonkeyPatch) -> None:
    original = kv.fractal
    patch.setattr(kv, "fractal", lambda new, cache, slots: original(new.flip(1), cache, slots))


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "taps in reverse": (
        _swapped("_output", _taps_reversed),
        "check_a_prefill_is_the_convolution_of_its_history_and_tokens",
    ),
    "no bias": (_swapped("_output", _bias_last), "check_a_prefill_is_the_convolution_of_its_history_and_tokens"),
    "history is always read": (
        _swapped("_history", _always_known),
        "check_a_prefill_is_the_convolution_of_its_history_and_tokens",
    ),
    "the cursor is not heeded": (
        _swapped("_history", _first_row),
        "check_an_update_goes_on_from_the_accepted_row_and_writes_from_row_0",
    ),
    "drafts are not written": (
        _swapped("_write_back", _no_write_back),
        "check_an_update_goes_on_from_the_accepted_row_and_writes_from_row_0",
    ),
    "history is kept from row 0": (
        _swapped("_write_back", _shifted),
        "check_an_update_goes_on_from_the_accepted_row_and_writes_from_row_0",
    ),
    "every width heeds the cursor": (
        _swapped("_heeds", _every_width),
        "check_other_widths_ignore_what_was_accepted",
    ),
    "skipped rows are zero": (_zeroed, "check_rows_that_nobody_computes_are_nan"),
    "entries wrap around": (_swapped("_entry", _wrapping), "check_accesses_out_of_bounds_are_errors"),
    "anything is taken": (_swapped("_demand", _lenient), "check_what_the_operator_does_not_take_is_an_error"),
    "no silu": (_swapped("_silu", lambda original: lambda value: value), "check_silu_is_applied_last"),
    "heads in another order": (_transposed_nz, "check_kv_rows_lie_at_their_slots"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_the_model_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, check = MUTANTS[name]
    CHECKS[check]()
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        CHECKS[check]()
