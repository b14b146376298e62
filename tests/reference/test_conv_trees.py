"""Draft trees: a row sees its ancestors and then the history; a commit keeps one path of it."""

import random

import pytest
import torch

from reference.conv_oracle import (
    EVERY_WINDOW,
    Model,
    Rig,
    Rows,
    convolve,
    line,
    lists,
    noise,
    rig,
    same,
    whole,
    with_model,
)


def outputs(model: Model, slot: int, x: Rows, parents: list[int]) -> Rows:
    """Each row convolved with its ancestors and the history."""
    lines = [[x[n] for n in line(parents, row)] for row in range(len(x))]
    return [convolve(model.history(slot), one, model.weight, model.bias, model.silu)[-1] for one in lines]


def started(made: Rig, model: Model, *slots: int) -> None:
    """Prompts of a few tokens in those slots."""
    x = whole(77, 4 * len(slots), model.channels, dtype=made.sub.view("conv", 0).dtype)
    for layer in made.sub.spec.layers:
        made.conv.prefill(layer, x, torch.arange(len(slots) + 1) * 4, made.pick(*slots))
    made.commit(*slots)
    for n, slot in enumerate(slots):
        model.keep(slot, lists(x)[4 * n : 4 * n + 4])


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("accepted", [1, 2, 3])
@pytest.mark.parametrize("width", range(2, 9))
def test_a_tree_of_five(width: int, accepted: int, name: str) -> None:
    """Parents [-1, 0, 0, 1, 2] and the path [0, 2, 4], up to each length, twice and then two decodes."""
    made = rig(width, 3, window=EVERY_WINDOW[name], verify_tokens=5, shared=True)
    model = with_model(made, 3)
    started(made, model, 2)
    parents, path = [-1, 0, 0, 1, 2], [0, 2, 4]
    for turn in range(2):
        x = whole(turn, 5, 3)
        got = made.conv.verify(0, x, made.pick(2), parents=torch.tensor(parents))
        assert lists(got) == outputs(model, 2, lists(x), parents)
        wide = torch.tensor([[*path, 99, -99]])
        made.conv.commit(made.pick(2), torch.tensor([accepted]), path=wide)
        model.keep(2, [lists(x)[row] for row in path[:accepted]])
        assert lists(made.conv.read_state(made.pick(2))[0, 0]) == model.history(2)
    for turn in range(2):
        x = whole(turn + 8, 1, 3)
        assert lists(made.conv.decode(0, x, made.pick(2))) == model.step(2, lists(x), 2)
        made.commit(2)
        model.keep(2, lists(x))
        assert lists(made.conv.read_state(made.pick(2))[0, 0]) == model.history(2)


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_trees_of_every_shape(width: int, name: str) -> None:
    """Ragged, with padding: combs, stars, chains and random trees, and every path from the root."""
    chance = random.Random(width)
    made = rig(width, 2, window=EVERY_WINDOW[name], verify_tokens=6, layers=(0, 9))
    model = with_model(made, 5)
    started(made, model, 1, 2, 3)
    shapes = [[-1], [-1, 0, 0, 0, 0, 0], [-1, 0, 1, 2, 3, 4], [-1, 0, 0, 2, 2, 4], [-1, 0, 1, 1, 0, 4]]
    shapes += [[-1] + [chance.randrange(row) for row in range(1, chance.randint(2, 6))] for _ in range(15)]
    for turn, shape in enumerate(shapes):
        trees = [chance.choice(shapes), shape, chance.choice(shapes), chance.choice(shapes)]
        slots = chance.sample([1, 2, 3, -1], 4)
        ends = [0]
        for one in trees:
            ends.append(ends[-1] + len(one))
        x = whole(turn, ends[-1] + 1, 2)
        parents = torch.tensor([above for one in trees for above in one] + [0])
        loc = torch.tensor(ends)
        got = made.conv.verify(0, x, made.pick(*slots), query_start_loc=loc, parents=parents)
        made.conv.verify(9, x, made.pick(*slots), query_start_loc=loc, parents=parents.int())
        paths = [line(one, chance.randrange(len(one))) for one in trees]
        made.conv.commit(
            made.pick(*slots),
            torch.tensor([len(path) for path in paths]),
            path=torch.tensor([[*path, *[chance.randint(-9, 9) for _ in range(6 - len(path))]] for path in paths]),
        )
        assert not got[-1].any()
        for n, slot in enumerate(slots):
            rows = lists(x)[ends[n] : ends[n + 1]]
            if slot > 0:
                assert lists(got[ends[n] : ends[n + 1]]) == outputs(model, slot, rows, trees[n])
            else:
                assert not got[ends[n] : ends[n + 1]].any()
            model.keep(slot, [rows[row] for row in paths[n]])
        state = made.conv.read_state(made.pick(1, 2, 3))
        assert lists(state[0]) == [model.history(slot) for slot in (1, 2, 3)]
        assert same(state[0], state[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("width", [2, 4, 8])
def test_a_chain_as_a_tree(width: int, name: str, dtype: torch.dtype) -> None:
    """Deep, of random numbers: as a chain, bit for bit, with and without the path, and in one batch with a fork."""
    made = rig(width, 3, str(dtype).removeprefix("torch."), window=EVERY_WINDOW[name], verify_tokens=8)
    made.conv.prepare(0, noise(1, 3, width, dtype=dtype), noise(2, 3, dtype=dtype), activation="silu")
    start = noise(3, 9, 3, dtype=dtype)
    made.conv.prefill(0, start.repeat(3, 1), torch.tensor([0, 9, 18, 27]), made.pick(1, 2, 3))
    made.commit(1, 2, 3)
    chain, fork = list(range(-1, 7)), [-1, 0, 0, 2, 1, 4, 3, 6]
    line_of_fork = [0, 2, 3, 6, 7]
    for turn, accepted in enumerate([8, 3, 1, 5, 7]):
        x = noise(turn + 9, 8, 3, dtype=dtype)
        first = made.conv.verify(0, x, made.pick(1))
        made.commit(1, accepted=[accepted])
        forked = torch.empty_like(x)
        forked[line_of_fork] = x[:5]
        forked[[1, 4, 5]] = float("inf")
        count = min(accepted, 5)
        both = made.conv.verify(0, torch.cat([x, forked]), made.pick(2, 3), parents=torch.tensor(chain + fork))
        path = torch.tensor([list(range(8)), [*line_of_fork, 5, 5, 5]])
        made.conv.commit(made.pick(2, 3), torch.tensor([accepted, count]), path=path)
        assert same(both[:8], first)
        assert same(both[8:][line_of_fork], first[:5])
        state = made.conv.read_state(made.pick(1, 2, 3))
        assert same(state[:, 0], state[:, 1])
        if count == accepted:
            assert same(state[:, 0], state[:, 2])
        made.conv.copy_slots(made.pick(1), made.pick(3))


@pytest.mark.parametrize("name", EVERY_WINDOW)
def test_rows_of_other_branches_are_of_no_account(name: str) -> None:
    """NaN in what is rejected reaches neither the outputs of the path nor the state."""
    made = rig(8, 3, window=EVERY_WINDOW[name], verify_tokens=7)
    model = with_model(made, 6)
    started(made, model, 1)
    parents, path = [-1, 0, 0, 1, 2, 2, 4], [0, 2, 4, 6]
    for turn in range(3):
        x = whole(turn, 7, 3)
        x[[1, 3, 5]] = float("nan")
        got = made.conv.verify(0, x, made.pick(1), parents=torch.tensor(parents))
        kept = lists(x[path])
        assert lists(got[path]) == model.step(1, kept, 1)
        made.conv.commit(made.pick(1), torch.tensor([4]), path=torch.tensor([[*path, 1, 3, 5]]))
        model.keep(1, kept)
        assert lists(made.conv.read_state(made.pick(1))[0, 0]) == model.history(1)
