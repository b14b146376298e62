"""Verify: outputs of drafts by definition, and the state that a commit of some of them leaves."""

import itertools

import pytest
import torch

from reference.conv_oracle import EVERY_WINDOW, Model, Rig, lists, noise, refused, rig, same, whole, with_model
from statehal.errors import ArgumentError, WrongIdSpace

DTYPES = ("float32", "bfloat16", "float16")


def loc(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)])


def states_agree(made: Rig, model: Model) -> None:
    got = made.conv.read_state(made.pick(*range(1, 7)))[0]
    assert lists(got) == [model.history(slot) for slot in range(1, 7)]


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize(("drafts", "dtype"), [(1, "float32"), (4, "bfloat16"), (4, "float32"), (8, "float16")])
@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_every_count_of_accepted_tokens(width: int, drafts: int, dtype: str, name: str) -> None:
    """Mixed per request, with padding first, in the middle and last, full and ragged, over many rounds."""
    made = rig(width, 3, dtype, (3,), EVERY_WINDOW[name], shared=True, verify_tokens=drafts)
    model = with_model(made, 4)
    torch_dtype = getattr(torch, dtype)
    prompt = whole(1, 9, 3, dtype=torch_dtype)
    made.conv.prefill(3, prompt, torch.tensor([0, 0, 1, 4, 9]), made.pick(1, 2, 3, 4))
    made.commit(1, 2, 3, 4)
    for slot, (start, end) in enumerate([(0, 0), (0, 1), (1, 4), (4, 9)], start=1):
        model.keep(slot, lists(prompt)[start:end])
    slots = [-1, 1, 3, 0, 2, 4, -7]
    for turn in range(2 * drafts + 2):
        ragged = turn % 2 == 1
        lengths = [1 + (turn * 3 + n * 5) % drafts if ragged else drafts for n in range(7)]
        accepted = [1 + (turn + n) % length for n, length in enumerate(lengths)]
        x = whole(turn + 20, sum(lengths), 3, dtype=torch_dtype)
        starts = loc(lengths).tolist()
        for slot, start, end in zip(slots, starts, starts[1:], strict=False):
            x[start : end if slot <= 0 else start] = float("nan")
        got = made.conv.verify(3, x, made.pick(*slots), query_start_loc=loc(lengths) if ragged else None)
        made.commit(*slots, accepted=accepted)
        for n, slot in enumerate(slots):
            rows = lists(x)[starts[n] : starts[n + 1]]
            assert lists(got)[starts[n] : starts[n + 1]] == model.step(slot, rows, slot)
            model.keep(slot, rows[: accepted[n]])
        states_agree(made, model)
    for turn in range(2):
        x = whole(turn + 90, 4, 3, dtype=torch_dtype)
        got = made.conv.decode(3, x, made.pick(1, 2, 3, 4))
        made.commit(1, 2, 3, 4)
        for slot, row, out in zip((1, 2, 3, 4), lists(x), lists(got), strict=True):
            assert [out] == model.step(slot, [row], slot)
            model.keep(slot, [row])
        states_agree(made, model)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", range(2, 9))
def test_the_same_on_every_window(width: int, dtype: str) -> None:
    """Outputs and live rows are facts of the tokens, not of protocol, order or padding; two decodes follow."""
    seen = []
    for window in EVERY_WINDOW.values():
        made = rig(width, 3, dtype, window=window, verify_tokens=5)
        torch_dtype = getattr(torch, dtype)
        made.conv.prepare(0, noise(1, 3, width, dtype=torch_dtype), noise(2, 3, dtype=torch_dtype), activation="silu")
        outputs = []
        for turn, accepted in enumerate(([2, 5], [1, 3], [5, 1], [4, 2])):
            x = noise(turn, 10, 3, dtype=torch_dtype)
            outputs.append(made.conv.verify(0, x, made.pick(2, 5)))
            made.commit(2, 5, accepted=accepted)
            outputs.append(made.conv.read_state(made.pick(2, 5)).flatten(0, 2))
        for turn in range(2):
            outputs.append(made.conv.decode(0, noise(turn + 50, 2, 3, dtype=torch_dtype), made.pick(5, 2)))
            made.commit(5, 2)
            outputs.append(made.conv.read_state(made.pick(2, 5)).flatten(0, 2))
        seen.append(torch.cat(outputs))
    assert all(same(one, seen[0]) for one in seen)


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("width", [2, 4, 8])
def test_mixed_lengths_without_rejected_drafts(width: int, name: str) -> None:
    """As a varlen update: everything is accepted; prefill with initial states gives the same, outputs and state."""
    made = rig(width, 3, window=EVERY_WINDOW[name], verify_tokens=6)
    made.conv.prepare(0, noise(8, 3, width, dtype=torch.float32))
    prompt, lengths = noise(1, 12, 3, dtype=torch.float32), [1, 6, 3]
    made.conv.prefill(0, torch.cat([prompt, prompt]), torch.arange(7) * 4, made.pick(1, 2, 3, 4, 5, 6))
    made.commit(1, 2, 3, 4, 5, 6)
    for turn in range(4):
        x = noise(turn + 5, sum(lengths), 3, dtype=torch.float32)
        one = made.conv.verify(0, x, made.pick(1, 2, 3), query_start_loc=loc(lengths))
        two = made.conv.prefill(0, x, loc(lengths), made.pick(4, 5, 6), torch.tensor([True] * 3))
        made.commit(1, 2, 3, 4, 5, 6, accepted=[*lengths, 1, 1, 1])
        assert same(one, two)
        state = made.conv.read_state(made.pick(1, 2, 3, 4, 5, 6))
        assert same(state[:, :3], state[:, 3:])
        lengths = [*lengths[1:], lengths[0]]


@pytest.mark.parametrize("name", EVERY_WINDOW)
def test_rows_past_the_most_drafts_and_past_the_end_give_zeros(name: str) -> None:
    """They are stored nowhere: a state of what was kept follows, and the neighbour's is its own."""
    made = rig(4, 3, window=EVERY_WINDOW[name], verify_tokens=3)
    model = with_model(made, 6)
    start = whole(1, 12, 3)
    made.conv.prefill(0, start, torch.tensor([0, 6, 12]), made.pick(1, 2))
    made.commit(1, 2)
    model.keep(1, lists(start)[:6])
    model.keep(2, lists(start)[6:])
    for turn, accepted in enumerate(([3, 1], [1, 3], [2, 2])):
        x = whole(turn + 2, 16, 3)
        got = made.conv.verify(0, x, made.pick(1, -1, 2), query_start_loc=torch.tensor([0, 6, 11, 14]))
        made.commit(1, -1, 2, accepted=[accepted[0], 1, accepted[1]])
        assert lists(got[:3]) == model.step(1, lists(x)[:3], 1)
        assert not got[3:11].any()
        assert lists(got[11:14]) == model.step(2, lists(x)[11:14], 2)
        assert not got[14:].any()
        model.keep(1, lists(x)[: accepted[0]])
        model.keep(2, lists(x)[11 : 11 + accepted[1]])
        states_agree(made, model)


@pytest.mark.parametrize("name", EVERY_WINDOW)
def test_a_request_without_tokens_stores_nothing(name: str) -> None:
    made = rig(4, 3, window=EVERY_WINDOW[name], verify_tokens=3)
    x = noise(1, 8, 3, dtype=torch.float32)
    made.conv.prefill(0, x, torch.tensor([0, 4, 8]), made.pick(1, 2))
    made.commit(1, 2)
    state, window = made.conv.read_state(made.pick(2)), made.sub.view("conv", 0, "page")[made.physical(2)].clone()
    got = made.conv.verify(0, x[:3], made.pick(2, 1, 2), query_start_loc=torch.tensor([0, 0, 3, 3]))
    assert got[:3].any()
    made.commit(1, accepted=[2])
    assert same(made.conv.read_state(made.pick(2)), state)
    assert same(made.sub.view("conv", 0, "page")[made.physical(2)], window)
    empty = made.conv.verify(0, x[:0], made.pick(), query_start_loc=torch.tensor([0]))
    assert empty.shape == made.conv.verify(0, x[:0], made.pick()).shape == (0, 3)
    beyond = made.conv.verify(0, x[:2], made.pick(), query_start_loc=torch.tensor([0]))
    assert beyond.shape == (2, 3)
    assert not beyond.any()


@pytest.mark.parametrize("parents", [None, torch.tensor([-1, 0, 0, 2] * 2)])
def test_x_may_be_strided_and_out_may_be_x(parents: torch.Tensor | None) -> None:
    made = rig(3, 4, layers=(0, 1), verify_tokens=4)
    packed = noise(5, 8, 12, dtype=torch.float32)
    x = packed[:, 4:8]
    wanted = made.conv.verify(0, x.clone(), made.pick(1, 2), parents=parents)
    target = torch.full((8, 9), 7.0)
    made.conv.zero_slots(made.slots)
    got = made.conv.verify(0, x, made.pick(1, 2), parents=parents, out=target[:, 2:6])
    assert got.data_ptr() == target[:, 2:6].data_ptr()
    assert same(target[:, 2:6], wanted)
    assert bool((target[:, [0, 1, 6, 7, 8]] == 7).all())
    rest = packed.clone()
    made.conv.zero_slots(made.slots)
    made.conv.verify(0, x, made.pick(1, 2), parents=parents, out=x)
    assert same(x, wanted)
    assert same(packed[:, :4], rest[:, :4])
    assert same(packed[:, 8:], rest[:, 8:])
    made.commit(1, 2, accepted=[4, 4])
    assert same(made.conv.read_state(made.pick(1))[0, 0], rest[[2, 3], 4:8])


def test_what_verify_refuses() -> None:
    made = rig(3, 2, verify_tokens=3)
    other = rig(3, 2, verify_tokens=3)
    x, verify, slots = whole(1, 6, 2), made.conv.verify, made.pick(1, 2)
    ends = torch.tensor([0, 3, 6])
    for rows in (0, 2, 5, 7):
        refused(made, ArgumentError, "x", lambda rows=rows: verify(0, whole(1, rows, 2), slots))  # type: ignore[misc]
    refused(made, ArgumentError, "query_start_loc", lambda: verify(0, x, slots, query_start_loc=ends[:2]))
    refused(made, ArgumentError, "query_start_loc", lambda: verify(0, x, slots, query_start_loc=ends.double()))
    refused(made, ArgumentError, "parents", lambda: verify(0, x, slots, parents=torch.tensor([-1, 0, 0])))
    refused(made, ArgumentError, "parents", lambda: verify(0, x, slots, parents=torch.zeros(6)))
    refused(made, ArgumentError, "x", lambda: verify(0, x.double(), slots))
    refused(made, ArgumentError, "x", lambda: verify(0, whole(1, 6, 3), slots))
    refused(made, ArgumentError, "layer", lambda: verify(9, x, slots))
    refused(made, ArgumentError, "out", lambda: verify(0, x, slots, out=torch.zeros(5, 2)))
    refused(made, WrongIdSpace, "kernel", lambda: verify(0, x, other.pick(1, 2)))
    narrow = rig(3, 2, "bfloat16", verify_tokens=3)
    error = "float16.*bfloat16|bfloat16.*float16"
    refused(narrow, ArgumentError, error, lambda: narrow.conv.verify(0, x.half(), narrow.pick(1, 2)))
    refused(made, WrongIdSpace, "bare", lambda: verify(0, x, torch.tensor([1, 2])))  # type: ignore[arg-type]
