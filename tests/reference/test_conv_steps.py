"""Sequences of steps against a model of lists: chunks, decodes, commits, reuse, shared prefixes, padding."""

import itertools
import random

import pytest
import torch

from reference.conv_oracle import Model, Rig, Rows, lists, rig, whole
from statehal.layout import ConvStateLayout

RING, OFFSET = ConvStateLayout(), ConvStateLayout(protocol="offset")
WINDOWS = {
    "ring": RING,
    "offset": OFFSET,
    "ring channels first": ConvStateLayout("channels_first"),
    "offset channels first, padded": ConvStateLayout("channels_first", 8, "offset"),
    "ring padded, block form": ConvStateLayout(channel_multiple=4, forms=("block",)),
    "offset, row form, aligned": ConvStateLayout(protocol="offset", forms=("row",), align=64),
}


def model_of(made: Rig, width: int, channels: int, seed: int, dtype: torch.dtype = torch.float32) -> Model:
    """A model with the weights of layer 0, which it sets."""
    weight, bias = whole(seed, channels, width, dtype=dtype), whole(seed + 1, channels, dtype=dtype)
    made.conv.prepare(0, weight, bias)
    return Model(width, channels, lists(weight), lists(bias))


def states(made: Rig, *slots: int) -> list[Rows]:
    return list(lists(made.conv.read_state(made.pick(*slots))[0]))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("drafts", [1, 3])
@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_a_prompt_in_two_chunks_is_the_whole_prompt(width: int, drafts: int, name: str) -> None:
    """Split at every position, ends included, and followed by two decodes in a row."""
    made = rig(width, 3, window=WINDOWS[name], verify_tokens=drafts)
    model = model_of(made, width, 3, 9)
    x = whole(1, 10, 3)
    wanted = model.step(1, lists(x), None)
    for split in range(9):
        made.conv.zero_slots(made.pick(2))
        first = made.conv.prefill(0, x[:split], torch.tensor([0, split]), made.pick(2))
        made.commit(2)
        yes = torch.tensor([True])
        rest = made.conv.prefill(0, x[split:8], torch.tensor([0, 8 - split]), made.pick(2), yes)
        made.commit(2)
        tail = []
        for token in x[8:]:
            tail.append(made.conv.decode(0, token[None], made.pick(2)))
            made.commit(2)
        assert lists(torch.cat([first, rest, *tail])) == wanted
        assert states(made, 2) == [model.next[1]]


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(("width", "drafts"), [(2, 1), (3, 4), (4, 1), (5, 2), (8, 3)])
def test_random_steps(width: int, drafts: int, name: str) -> None:
    """Mixed packed batches with empty sequences, padding slots, tokens past the end, prefixes and reuse."""
    chance = random.Random(width * 10 + drafts)
    made = rig(width, 3, window=WINDOWS[name], verify_tokens=drafts, shared=True)
    model = model_of(made, width, 3, 20)
    used: set[int] = set()
    for step in range(40):
        count = chance.randint(0, 5)
        live = chance.sample(range(1, 7), count)
        slots = [slot if chance.random() < 0.8 else chance.choice([-1, 0, -9]) for slot in live]
        if chance.random() < 0.5:
            x = whole(step, count, 3)
            got = lists(made.conv.decode(0, x, made.pick(*slots)))
            wanted = [model.step(slot, [row], slot)[0] for slot, row in zip(slots, lists(x), strict=True)]
        else:
            lengths = [chance.choice([0, 0, 1, 1, 2, width - 1, width, 9]) for _ in slots]
            ends = list(itertools.accumulate(lengths, initial=0))
            beyond = chance.choice([0, 0, 3])
            x = whole(step, ends[-1] + beyond, 3)
            free = [slot for slot in range(1, 7) if slot not in slots]
            sources = [chance.choice([slot, *free]) if slot > 0 else slot for slot in slots]
            initial = [chance.random() < 0.6 for _ in slots]
            got = lists(
                made.conv.prefill(
                    0,
                    x,
                    torch.tensor(ends, dtype=chance.choice([torch.int32, torch.int64])),
                    made.pick(*slots),
                    torch.tensor(initial) if slots else None,
                    initial_slots=made.pick(*sources)
                    if slots and (sources != slots or chance.random() < 0.9)
                    else None,
                )
            )
            wanted = []
            for slot, source, has, start, end in zip(slots, sources, initial, ends, ends[1:], strict=False):
                wanted += model.step(slot, lists(x)[start:end], source if has else None)
            wanted += [[0.0] * 3] * beyond
        assert got == wanted
        made.commit(*slots)
        model.commit(slots)
        used |= {slot for slot in slots if slot > 0}
        assert states(made, *range(1, 7)) == [model.history(slot) for slot in range(1, 7)]
        made.pool.check()
    assert used == set(range(1, 7))


@pytest.mark.parametrize("name", WINDOWS)
def test_two_decodes_in_a_row_after_a_commit_of_several(name: str) -> None:
    """A cursor that one decode forgets shows only at the second."""
    made = rig(4, 3, window=WINDOWS[name], verify_tokens=4)
    model = model_of(made, 4, 3, 30)
    x = whole(2, 12, 3)
    made.conv.prefill(0, x[:5], torch.tensor([0, 5]), made.pick(3))
    model.step(3, lists(x)[:5], None)
    made.commit(3)
    model.commit([3])
    for token in range(5, 12):
        got = made.conv.decode(0, x[token : token + 1], made.pick(3))
        assert lists(got) == model.step(3, lists(x)[token : token + 1], 3)
        made.commit(3)
        model.commit([3])
        assert states(made, 3) == [model.history(3)]


@pytest.mark.parametrize("initial", [None, torch.tensor([False])])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_reused_slot_does_not_leak(name: str, initial: torch.Tensor | None) -> None:
    made = rig(4, 3, window=WINDOWS[name], verify_tokens=3)
    model = model_of(made, 4, 3, 50)
    made.conv.prefill(0, torch.full((9, 3), float("inf")), torch.tensor([0, 9]), made.pick(1))
    made.commit(1, accepted=[2])
    x = whole(3, 2, 3)
    got = made.conv.prefill(0, x, torch.tensor([0, 2]), made.pick(1), initial)
    assert lists(got) == model.step(1, lists(x), None)
    made.commit(1)
    assert states(made, 1) == [model.next[1]]


@pytest.mark.parametrize("name", WINDOWS)
def test_an_empty_sequence_without_initial_state_zeroes_its_slot(name: str) -> None:
    made = rig(4, 3, window=WINDOWS[name], state=(2, 2), shared=True)
    model_of(made, 4, 3, 60)
    ones = torch.ones(6, 3)
    made.conv.prefill(0, ones, torch.tensor([0, 3, 6]), made.pick(1, 2))
    made.commit(1, 2)
    state = made.sub.view("state", 0, "page")
    one, two = made.physical(1), made.physical(2)
    state[[one, two]] = 5.0
    got = made.conv.prefill(0, whole(1, 7, 3), torch.tensor([0, 3, 3, 7]), made.pick(3, 1, 4))
    assert got.shape == (7, 3)
    made.commit(3, 1, 4)
    assert states(made, 1) == [[[0.0] * 3] * 3]
    assert states(made, 2) == [[[1.0] * 3] * 3]
    assert state[one].eq(0).all()
    assert state[two].eq(5).all()
    made.pool.check()


@pytest.mark.parametrize("tokens", [0, 1, 2, 5])
def test_a_shared_prefix_is_read_and_left_alone(tokens: int) -> None:
    """Also a chunk shorter than the history, whose own state is mostly the prefix's."""
    made = rig(5, 3, layers=(0, 1))
    model = model_of(made, 5, 3, 70)
    x = whole(4, 8, 3)
    made.conv.prefill(0, x, torch.tensor([0, 8]), made.pick(1))
    made.commit(1)
    model.step(1, lists(x), None)
    model.commit([1])
    more = whole(5, 2 * tokens, 3)
    got = made.conv.prefill(
        0,
        more,
        torch.tensor([0, tokens, 2 * tokens]),
        made.pick(2, 3),
        torch.tensor([True, True]),
        initial_slots=made.pick(1, 1),
    )
    wanted = model.step(2, lists(more)[:tokens], 1) + model.step(3, lists(more)[tokens:], 1)
    assert lists(got) == wanted
    made.commit(2, 3)
    assert states(made, 1, 2, 3) == [model.history(1), model.next[2], model.next[3]]


def test_tokens_before_the_first_sequence_are_of_no_sequence() -> None:
    made = rig(3, 2)
    model = model_of(made, 3, 2, 80)
    x = whole(6, 6, 2)
    got = made.conv.prefill(0, x, torch.tensor([2, 5]), made.pick(1))
    assert lists(got) == [[0.0] * 2] * 2 + model.step(1, lists(x)[2:5], None) + [[0.0] * 2]
    made.commit(1)
    assert states(made, 1) == [model.next[1]]
