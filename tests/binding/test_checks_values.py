"""With checking on: slots used in two ways, counts and places out of range, positions outside of the table."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import statehal
from reference.conv_oracle import Rig, refused, rig
from reference.kv_oracle import raw
from statehal.errors import ArgumentError, StepError, WrongIdSpace

YES = torch.tensor([True, True])


def x(tokens: int) -> torch.Tensor:
    return torch.ones(tokens, 3)


def loc(*ends: int) -> torch.Tensor:
    return torch.tensor([0, *ends])


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


@pytest.fixture
def made() -> Rig:
    return rig(4, 3, verify_tokens=3, state=(2,), check=True)


def test_slots_named_twice(made: Rig) -> None:
    conv, twice = made.conv, made.pick(2, 1, -1, 2)
    calls: dict[str, Callable[[], Any]] = {
        "decode of layer 0 of 'conv': slots": lambda: conv.decode(0, x(4), twice),
        "prefill of layer 0 of 'conv': slots": lambda: conv.prefill(0, x(4), loc(1, 2, 3, 4), twice),
        "verify of layer 0 of 'conv': slots": lambda: conv.verify(0, x(12), twice),
        "commit of 'conv': slots": lambda: conv.commit(twice, ints(1, 1, 1, 1)),
        "copy_slots of 'conv': dst": lambda: conv.copy_slots(made.pick(3, 3, 3, 3), twice),
    }
    for where, call in calls.items():
        refused(made, ArgumentError, rf"{where} name slot \d+ twice: expected each once", call)


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((2, 1), r"query_start_loc\[2\] is 1: expected 2 to 4"),
        ((2, 5), r"query_start_loc\[2\] is 5: expected 2 to 4"),
        ((-1, 2), r"query_start_loc\[1\] is -1: expected 0 to 4"),
    ],
)
def test_bounds_of_sequences(made: Rig, ends: tuple[int, ...], text: str) -> None:
    refused(made, ArgumentError, text, lambda: made.conv.prefill(0, x(4), loc(*ends), made.pick(1, 2)))
    refused(made, ArgumentError, text, lambda: made.conv.verify(0, x(4), made.pick(1, 2), query_start_loc=loc(*ends)))


@pytest.mark.parametrize("ends", [(0, 2), (4, 5)])
def test_drafts_of_a_request(made: Rig, ends: tuple[int, ...]) -> None:
    text = r"tokens of request\[0\] is [04]: expected 1 to 3"
    refused(made, ArgumentError, text, lambda: made.conv.verify(0, x(5), made.pick(1, 2), query_start_loc=loc(*ends)))
    made.conv.verify(0, x(5), made.pick(-1, 2), query_start_loc=loc(*ends))


@pytest.mark.parametrize(
    ("parents", "text"),
    [
        ((-1, 0, 2, -1, 0), r"parents\[2\] is 2: expected 0 to 1"),
        ((-1, -1, 0, -1, 0), r"parents\[1\] is -1: expected 0 to 0"),
        ((-1, 0, 0, 0, 0), r"parents\[3\] is 0: expected -1 to -1"),
        ((-1, 0, 0, -1, -2), r"parents\[4\] is -2: expected 0 to 0"),
    ],
)
def test_parents(made: Rig, parents: tuple[int, ...], text: str) -> None:
    def call(slot: int = 2) -> None:
        made.conv.verify(0, x(5), made.pick(1, slot), query_start_loc=loc(3, 5), parents=ints(*parents))

    refused(made, ArgumentError, text, call)
    made.conv.verify(0, x(5), made.pick(1, 2), query_start_loc=loc(3, 5), parents=ints(-1, 0, 1, -1, 0))


def verified(made: Rig) -> None:
    made.conv.verify(0, x(5), made.pick(1, 2), query_start_loc=loc(3, 5))


@pytest.mark.parametrize(("first", "second"), [(0, 1), (4, 1), (3, 3), (3, 0), (-1, 2)])
def test_accepted(made: Rig, first: int, second: int) -> None:
    verified(made)
    text = r"commit of 'conv': accepted\[[01]\] is -?\d: expected 1 to [32]"
    refused(made, ArgumentError, text, lambda: made.conv.commit(made.pick(1, 2), ints(first, second)))
    made.conv.commit(made.pick(1, 2), ints(3, 2))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((1, 2, 0), r"path\[0, 0\] is 1: row 1 is not the first in its tree"),
        ((0, 2, 1), r"path\[0, 1\] is 2: row 2 does not follow row 0 in its tree \(fix: pass the accepted rows, root"),
        ((0, 0, 1), r"path\[0, 1\] is 0: row 0 does not follow row 0"),
        ((0, 1, 3), r"path\[0, 2\] is 3: expected 0 to 2"),
        ((0, -1, 2), r"path\[0, 1\] is -1: expected 0 to 2"),
    ],
)
def test_paths(made: Rig, path: tuple[int, ...], text: str) -> None:
    verified(made)
    paths = torch.tensor([path, [0, 1, 9]])
    refused(made, ArgumentError, text, lambda: made.conv.commit(made.pick(1, 2), ints(3, 2), path=paths))
    paths[0] = ints(0, 1, 2)
    made.conv.commit(made.pick(1, 2), ints(3, 2), path=paths)


def test_slots_of_a_commit_that_clash(made: Rig) -> None:
    verified(made)

    def commit(states: list[list[int]], tracks: tuple[int, int], counts: tuple[int, int] = (1, 1)) -> None:
        made.conv.commit(
            made.pick(1, 2),
            ints(2, 2),
            state_slots=made.pick(*states[0], *states[1]).reshape(2, 3),
            track_slots=made.pick(*tracks),
            track_accepted=ints(*counts),
        )

    good = [[1, 3, 4], [2, 5, -1]]
    cases: list[tuple[str, Any]] = [
        (r"state_slots name slot \d+, which is one of the slots of other", ([[1, 2, 4], [2, 5, -1]], (6, -1))),
        (r"track_slots name slot \d+ twice", (good, (6, 6))),
        (r"track_slots name slot \d+, which is one of the slots", (good, (2, 6))),
        (r"track_slots name slot \d+, which is one of the state_slots", (good, (-1, 5))),
        (r"state_slots name slot \d+ twice", ([[1, 3, 3], [2, 5, -1]], (6, -1))),
        (r"state_slots name slot \d+ twice", ([[1, 3, 4], [2, 4, -1]], (6, -1))),
        (r"state_slots\[0, 1\] is padding, and the step keeps the conv rows", ([[1, -1, 4], [2, 5, -1]], (6, -1))),
        (r"state_slots\[0, 0\] is padding, and the step keeps the conv rows", ([[-1, 3, 4], [2, 5, -1]], (6, -1))),
        (r"track_accepted\[1\] is 3: expected 0 to 2", (good, (6, -1), (1, 3))),
        (r"track_accepted\[0\] is -1: expected 0 to 2", (good, (6, -1), (-1, 0))),
    ]
    for text, arguments in cases:
        refused(made, ArgumentError, text, lambda arguments=arguments: commit(*arguments))  # type: ignore[misc]
    commit(good, (6, 1), (2, 0))  # a request that tracks nothing may name any slot


def test_scratch_slots_in_the_middle_of_a_step(made: Rig) -> None:
    verified(made)
    made.conv.decode(0, x(1), made.pick(4))
    states = made.pick(1, 3, 4, 2, 5, 4).reshape(2, 3)
    text = r"state_slots name slot \d+, whose step is not committed"
    call = partial(made.conv.commit, made.pick(1, 2), ints(3, 2), state_slots=states)
    refused(made, StepError, text, call)


def test_a_batch_that_pads_what_it_does_not_use(made: Rig) -> None:
    """As a captured graph does: padding slots, no tokens for them, any values beside them."""
    slots, ends = made.pick(1, -1, -1), torch.tensor([0, 2, 2, 2])
    flags = torch.tensor([True, True, False])
    points = ints(0, 7, -3), ints(1, 9, 9), made.pick(6, -1, 0)
    prefix = made.pick(5, -1, 1)
    made.conv.prefill(0, x(2), ends, slots, flags, initial_slots=prefix, snapshots=points)
    states = made.pick(1, -1, -1, 2, 2, 4, 2, 2, 4).reshape(3, 3)  # a captured batch may repeat rows
    made.conv.commit(
        slots,
        ints(1, 99, -5),
        state_slots=states,
        track_slots=made.pick(3, 4, 4),
        track_accepted=ints(1, 7, -1),
    )


def test_slots_of_a_prefill_that_clash(made: Rig) -> None:
    def call(initial: tuple[int, int] = (1, 2), points: Any = None, has: torch.Tensor = YES) -> torch.Tensor:
        options: dict[str, Any] = {"initial_slots": made.pick(*initial)}
        if points is not None:
            options["snapshots"] = (ints(*points[0]), ints(*points[1]), made.pick(*points[2]))
        return made.conv.prefill(0, x(5), loc(3, 5), made.pick(1, 2), has, **options)

    cases: list[tuple[str, Any]] = [
        (r"initial_slots read slot \d+, which another sequence writes", ((2, 1),)),
        (r"snapshots name slot \d+ twice", ((1, 2), ((0, 1), (1, 1), (3, 3)))),
        (r"snapshots name slot \d+, which is one of the slots or", ((1, 2), ((0,), (1,), (2,)))),
        (r"snapshots name slot \d+, which is one of the slots or initial_slots", ((5, 2), ((0,), (1,), (5,)))),
        (r"initial_slots\[1\] is 0: expected 1 to", ((1, -1),)),
        (r"snapshots\[0\]\[0\] is 2: expected 0 to 1", ((1, 2), ((2,), (1,), (3,)))),
        (r"snapshots\[1\]\[1\] is 3: expected 0 to 2", ((1, 2), ((0, 1), (3, 3), (3, 4)))),
        (r"snapshots\[1\]\[0\] is -1: expected 0 to 3", ((1, 2), ((0,), (-1,), (3,)))),
    ]
    for text, arguments in cases:
        refused(made, ArgumentError, text, lambda arguments=arguments: call(*arguments))  # type: ignore[misc]
    call((2, 2), ((0, 1, 7), (3, 2, 9), (4, 5, -1)), torch.tensor([False, True]))


def test_slots_that_nobody_holds(made: Rig) -> None:
    ids = made.pick(1, 2)
    made.pool.free([1], family=made.sub.family)
    ones = ints(1, 1)
    calls: list[Callable[[], Any]] = [
        lambda: made.conv.decode(0, x(2), ids),
        lambda: made.conv.verify(0, x(6), ids),
        lambda: made.conv.prefill(0, x(2), loc(1, 2), ids),
        lambda: made.conv.commit(ids, ones),
        lambda: made.conv.copy_slots(ids, ids),
        lambda: made.conv.zero_slots(ids),
        lambda: made.conv.read_state(ids),
    ]
    for call in calls:
        refused(made, WrongIdSpace, "name no page in use", call)


def test_what_the_provider_refuses_is_left_to_it(made: Rig) -> None:
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("x is torch.float32", lambda: made.conv.decode(0, x(2), made.pick(1))),
        ("no layer 5 here", lambda: made.conv.decode(5, x(1), made.pick(1))),
        ("query_start_loc is", lambda: made.conv.prefill(0, x(1), torch.tensor([0.0, 1.0]), made.pick(1))),
        ("query_start_loc is", lambda: made.conv.verify(0, x(1), made.pick(1), query_start_loc=loc(1, 1))),
        ("parents is", lambda: made.conv.verify(0, x(3), made.pick(1), parents=loc(1))),
        (
            "initial_slots has 2",
            lambda: made.conv.prefill(0, x(1), loc(1), made.pick(1), initial_slots=made.pick(2, 3)),
        ),
    ]
    for text, call in cases:
        refused(made, ArgumentError, text, call)
    made.conv.decode(0, x(1), made.pick(1))
    refused(made, ArgumentError, "accepted is", lambda: made.conv.commit(made.pick(1), ints(1, 1)))
    refused(made, ArgumentError, "path is", lambda: made.conv.commit(made.pick(1), ints(1), path=ints(0)))


def test_positions_and_moves_of_attention_rows() -> None:
    hal = statehal.bind("cpu", "reference", check=True)
    specs = [
        statehal.Attention("kv", (0,), 1, 4, "float32"),
        statehal.Latent("mla", (1,), 4, 2, "float32"),
    ]
    pool = hal.allocate(hal.plan(specs, tokens=16, page_size=4))
    pages = pool.alloc(6)
    ids, latent = pool["kv"].kernel_ids(pages.token_ids()), pool["mla"].kernel_ids(pages.token_ids())
    kv, mla = hal.kv(pool["kv"]), hal.kv(pool["mla"])
    rows, table = torch.ones(6, 1, 4), torch.ones(9, 2)
    before = raw(pool.buffer)
    good = torch.arange(6)
    for bad, text in ((9, "positions.* is 9: expected 0 to 8"), (-1, "positions.* is -1: expected 0 to 8")):
        wrong = torch.tensor([0, 1, bad, 3, 4, 5])
        with pytest.raises(ArgumentError, match="rope_write to layer 0 of 'kv': " + text):
            kv.rope_write(0, ids, rows, rows, rows, wrong, table)
        with pytest.raises(ArgumentError, match="write_latent to layer 1 of 'mla': " + text):
            mla.write_latent(1, latent, rows[:, 0], rows[:, 0, :2], positions=wrong, cos_sin=table)
        three = torch.stack([good, wrong, good])
        with pytest.raises(ArgumentError, match=r"positions\[1, 2\] is"):
            kv.rope_write(0, ids, rows, rows, rows, three, table, rope_sections=(1, 0, 0))
    twice = ids[[1, 2, 1]]
    with pytest.raises(ArgumentError, match=r"write to layer 0 of 'kv': ids name token \d+ twice"):
        kv.write(0, twice, rows[:3], rows[:3])
    with pytest.raises(ArgumentError, match=r"rope_write to layer 0 of 'kv': ids name token \d+ twice"):
        kv.rope_write(0, twice, rows[:3], rows[:3], rows[:3], good[:3], table)
    with pytest.raises(ArgumentError, match=r"move in 'kv': dst name token \d+ twice"):
        kv.move(ids[[1, 1]], ids[[2, 3]])
    assert raw(pool.buffer) == before
    numbers = ids.tensors[0].clone()
    numbers[2] = -1
    padded = pool["kv"].space("kernel").assume(numbers)
    kv.rope_write(0, padded, rows, rows, rows, torch.tensor([0, 1, 99, 3, 4, 5]), table)
    kv.move(padded[[2, 2, 0]], ids[[2, 3, 1]])
    pool.free(pages)
    with pytest.raises(WrongIdSpace, match="no page in use"):
        kv.write(0, ids, rows, rows)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e-50, 1e300])
def test_scales_that_nothing_can_be_divided_by(value: float) -> None:
    hal = statehal.bind("cpu", "reference", check=True)
    specs = [statehal.Attention("kv", (0,), 1, 4, "int8"), statehal.Latent("mla", (1,), 4, 2, "float8_e5m2")]
    pool = hal.allocate(hal.plan(specs, tokens=16, page_size=4))
    pages = pool.alloc(2)
    kv, mla = hal.kv(pool["kv"]), hal.kv(pool["mla"])
    ids, rows, bad = (
        pool["kv"].kernel_ids(pages.token_ids()),
        torch.ones(2, 1, 4),
        torch.tensor([value], dtype=torch.float64),
    )
    latent, table = pool["mla"].kernel_ids(pages.token_ids()), torch.ones(3, 2)
    calls: dict[str, Callable[[], Any]] = {
        "k_scale": lambda: kv.write(0, ids, rows, rows, k_scale=bad),
        "v_scale": lambda: kv.rope_write(0, ids, rows, rows, rows, ints(0, 1), table, v_scale=bad),
        "scale": lambda: mla.write_latent(1, latent, rows[:, 0], rows[:, 0, :2], scale=bad),
    }
    before = raw(pool.buffer)
    for name, call in calls.items():
        with pytest.raises(ArgumentError, match=rf" {name} is {re.escape(str(value))}: expected a scale"):
            call()
    assert raw(pool.buffer) == before
