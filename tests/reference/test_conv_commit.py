"""What a commit moves beside the cursor: recurrent rows, tracked checkpoints, further fields, replay rings."""

import random
from functools import partial
from typing import Any

import pytest
import torch

from reference.conv_oracle import EVERY_WINDOW, Rig, line, noise, places, refused, rig, same, whole
from statehal.errors import ArgumentError, LayoutError
from statehal.layout import ConvStateLayout
from statehal.spec import ExtraField

LAYERS = (4, 1)
STATE = (2, 3)
SHIFTS = (ExtraField("shift", (5,), "int32"), ExtraField("mark", (2, 2), "uint8", (1,)))
FIELDS = (("state", 4), ("state", 1), ("shift", 4), ("shift", 1), ("mark", 1))
"""Recurrent rows and the layers that have them."""


def fill(made: Rig, *slots: int) -> None:
    """Give the recurrent rows of each slot a value of its own."""
    for slot in slots:
        for n, (name, layer) in enumerate(FIELDS):
            made.sub.view(name, layer, "page")[made.physical(slot), 0] = slot * 7 + n


def value(made: Rig, slot: int) -> int:
    """The slot whose rows, of all layers and fields, this one has."""
    seen = set()
    for n, (name, layer) in enumerate(FIELDS):
        seen |= {(int(one) - n) / 7 for one in made.sub.view(name, layer, "page")[made.physical(slot), 0].flatten()}
    assert len(seen) == 1
    (one,) = seen
    return int(one)


def drafted(made: Rig, x: torch.Tensor, *slots: int) -> None:
    """A verify of every layer."""
    for layer in LAYERS:
        made.conv.verify(layer, x, made.pick(*slots))


def live(made: Rig, *slots: int) -> torch.Tensor:
    return made.conv.read_state(made.pick(*slots))


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("accepted", [(1, 1), (2, 3), (3, 1), (1, 2)])
def test_state_slots(name: str, accepted: tuple[int, int]) -> None:
    """Conv and recurrent rows, of all layers and fields, are of one count; other slots keep theirs."""
    made = rig(4, 3, layers=LAYERS, window=EVERY_WINDOW[name], verify_tokens=3, state=STATE, extra=SHIFTS, slots=12)
    fill(made, *range(1, 13))
    x = noise(1, 9, 3, dtype=torch.float32)
    drafted(made, x, 1, -1, 2)
    after = made.pick(5, 6, 7, 8, 9, 10, 11, 12, 3).reshape(3, 3)
    made.conv.commit(made.pick(1, -1, 2), torch.tensor([accepted[0], 2, accepted[1]]), state_slots=after)
    assert value(made, 1) == 4 + accepted[0]
    assert value(made, 2) == {1: 11, 2: 12, 3: 3}[accepted[1]]
    assert [value(made, slot) for slot in range(3, 13)] == list(range(3, 13))
    for n, (slot, start) in enumerate([(1, 0), (2, 6)]):
        rows = torch.cat([torch.zeros(3, 3), x[start : start + accepted[n]]])[-3:]
        assert same(live(made, slot)[:, 0], rows.expand(2, 3, 3))


def test_a_padding_entry_of_state_slots_copies_nothing() -> None:
    made = rig(4, 3, layers=LAYERS, verify_tokens=2, state=STATE, extra=SHIFTS, slots=8)
    fill(made, *range(1, 9))
    drafted(made, whole(1, 8, 3), 1, 2, 3, 4)
    after = made.pick(5, -1, -1, 6, 0, 7, 8, 0).reshape(4, 2)
    made.conv.commit(made.pick(1, 2, 3, 4), torch.tensor([2, 1, 2, 1]), state_slots=after)
    assert [value(made, slot) for slot in range(1, 9)] == [1, 2, 7, 8, 5, 6, 7, 8]
    drafted(made, whole(2, 2, 3), 1)
    made.conv.commit(made.pick(1), torch.tensor([2]))  # a host whose kernels find the state by table and count
    assert value(made, 1) == 1


def test_a_step_of_no_requests() -> None:
    """With everything that a step may have: nothing changes."""
    made = rig(4, 3, layers=LAYERS, verify_tokens=2, state=STATE, extra=SHIFTS)
    fill(made, 1, 2)
    before = made.pool.buffer.clone()
    none, nobody = torch.zeros(0, dtype=torch.int64), made.pick()
    assert made.conv.verify(4, torch.zeros(0, 3), nobody, parents=none).shape == (0, 3)
    wide = {"path": none.reshape(0, 2), "state_slots": nobody.reshape(0, 2)}
    made.conv.commit(nobody, none, track_slots=nobody, track_accepted=none, **wide)  # type: ignore[arg-type]
    made.conv.commit(made.pick(-1, 0), torch.tensor([1, 5]))
    assert same(made.pool.buffer, before)


def test_state_slots_are_read_before_any_is_written() -> None:
    """A host may keep a request's states in the slots of another."""
    made = rig(4, 3, layers=LAYERS, verify_tokens=2, state=STATE, extra=SHIFTS, slots=6)
    fill(made, *range(1, 7))
    drafted(made, whole(1, 6, 3), 1, 2, 3)
    after = made.pick(2, 1, 3, 1, 3, 3).reshape(3, 2)
    made.conv.commit(made.pick(1, 2, 3), torch.tensor([1, 2, 2]), state_slots=after)
    assert [value(made, slot) for slot in range(1, 4)] == [2, 1, 3]


@pytest.mark.parametrize("name", EVERY_WINDOW)
def test_a_path_says_which_rows_and_which_state_slots(name: str) -> None:
    """A host's kernels write a state for every row of a tree; that of the path's last row is due."""
    made = rig(3, 3, layers=LAYERS, window=EVERY_WINDOW[name], verify_tokens=4, state=STATE, extra=SHIFTS, slots=10)
    fill(made, *range(1, 11))
    x = noise(1, 4, 3, dtype=torch.float32)
    for layer in LAYERS:
        made.conv.verify(layer, x, made.pick(1), parents=torch.tensor([-1, 0, 0, 2]))
    path = torch.tensor([[0, 2, 3, 77]])
    after = made.pick(5, 6, 7, 8).reshape(1, 4)
    made.conv.commit(
        made.pick(1), torch.tensor([3]), path=path, state_slots=after, track_slots=made.pick(2),
        track_accepted=torch.tensor([2]),
    )  # fmt: skip
    assert (value(made, 1), value(made, 2)) == (8, 7)
    assert same(live(made, 1)[0, 0], x[[2, 3]])
    assert same(live(made, 2)[0, 0], x[[0, 2]])


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("drafts", [3, 5])
def test_tracked_slots_are_what_a_commit_of_that_count_leaves(drafts: int, name: str) -> None:
    """Every count beside every count accepted; the tracked slot goes on as the request would have, twice."""
    window = EVERY_WINDOW[name]
    made = rig(4, 3, layers=LAYERS, window=window, verify_tokens=drafts, state=STATE, extra=SHIFTS, slots=16)
    prompt, x, more = (noise(n, count, 3, dtype=torch.float32) for n, count in enumerate((7, drafts, drafts)))
    for accepted in range(1, drafts + 1):
        for tracked in range(drafts + 2):
            fill(made, *range(1, 17))
            made.conv.zero_slots(made.pick(1, 2, 3))
            for layer in LAYERS:
                made.conv.prefill(layer, torch.cat([prompt, prompt]), torch.tensor([0, 7, 14]), made.pick(1, 2))
            made.commit(1, 2)
            fill(made, 3)
            drafted(made, torch.cat([x, x]), 1, 2)
            after = made.pick(*range(5, 5 + drafts), *range(5, 5 + drafts)).reshape(2, drafts)
            made.conv.commit(
                made.pick(1), torch.tensor([accepted]), state_slots=after[:1], track_slots=made.pick(3),
                track_accepted=torch.tensor([tracked], dtype=torch.int32),
            )  # fmt: skip
            due = 0 < tracked <= accepted
            made.conv.commit(made.pick(2), torch.tensor([tracked if due else accepted]), state_slots=after[1:])
            assert value(made, 1) == 4 + accepted
            if not due:
                assert value(made, 3) == 3
                assert not live(made, 3).any()
                continue
            assert value(made, 3) == value(made, 2) == 4 + tracked
            assert same(live(made, 3), live(made, 2))
            for _ in range(2):
                for layer in LAYERS:
                    both = made.conv.verify(layer, torch.cat([more, more]), made.pick(2, 3))
                    assert same(both[:drafts], both[drafts:])
                made.commit(2, 3, accepted=[2, 2])
                assert same(live(made, 3), live(made, 2))


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize(("state", "drafts"), [(None, 4), (STATE, 1)])
def test_tracking_without_state_slots(state: tuple[int, ...] | None, drafts: int, name: str) -> None:
    """Where there are no drafts, or no recurrent state, a slot's own rows are those of the count."""
    window = EVERY_WINDOW[name]
    extra = SHIFTS[:1] if drafts == 1 else ()
    made = rig(5, 3, layers=LAYERS, window=window, verify_tokens=drafts, state=state, extra=extra)
    x = noise(1, 3 * drafts, 3, dtype=torch.float32)
    drafted(made, x, 1, -1, 2)
    for layer in LAYERS if drafts == 1 else ():
        made.sub.view("shift", layer, "page")[made.physical(1), 0] = 8 + layer
        made.sub.view("state", layer, "page")[made.physical(1), 0] = 9.5 + layer
    counts = torch.tensor([drafts, 1, 1])
    made.conv.commit(
        made.pick(1, -1, 2), counts, track_slots=made.pick(3, 4, -1), track_accepted=torch.ones(3, dtype=torch.int64)
    )
    assert same(live(made, 3)[0, 0], torch.cat([torch.zeros(3, 3), x[:1]]))
    assert not live(made, 4).any()
    for layer in LAYERS if drafts == 1 else ():
        assert bool((made.sub.view("shift", layer, "page")[made.physical(3)] == 8 + layer).all())
        assert bool((made.sub.view("state", layer, "page")[made.physical(3)] == 9.5 + layer).all())
        assert not made.sub.view("state", layer, "page")[made.physical(4)].any()
    made.pool.check()


def test_prompts_and_decodes_are_tracked_too() -> None:
    """Their count is 1, and the host that wrote the slot's own state passes padding for it."""
    made = rig(4, 3, layers=LAYERS, verify_tokens=3, state=STATE, extra=SHIFTS, slots=8)
    fill(made, *range(1, 9))
    x = noise(3, 6, 3, dtype=torch.float32)
    for layer in LAYERS:
        made.conv.prefill(layer, x[:5], torch.tensor([0, 5]), made.pick(1))
        made.conv.decode(layer, x[5:], made.pick(2))
    made.conv.commit(
        made.pick(2, 1), torch.tensor([1, 1]), state_slots=made.pick(5, -1, -1, -1, -1, -1).reshape(2, 3),
        track_slots=made.pick(4, 3), track_accepted=torch.tensor([1, 1]),
    )  # fmt: skip
    assert same(live(made, 4, 3), live(made, 2, 1))
    assert same(live(made, 3)[0, 0], x[2:5])
    assert [value(made, slot) for slot in (1, 2, 3, 4)] == [1, 5, 1, 5]


@pytest.mark.parametrize("spec", [{"state": STATE}, {"extra": SHIFTS[:1]}])
def test_conv_and_recurrent_rows_cannot_be_of_two_counts(spec: dict[str, Any]) -> None:
    """Tracking drafts of a spec with recurrent rows takes those of each count."""
    made = rig(4, 3, layers=LAYERS, verify_tokens=3, **spec)
    drafted(made, whole(1, 3, 3), 1)
    call = partial(made.conv.commit, made.pick(1), torch.tensor([2]))
    one, after = torch.tensor([1]), made.pick(3, 4, 5).reshape(1, 3)
    refused(made, ArgumentError, "state_slots", partial(call, track_slots=made.pick(2), track_accepted=one))
    refused(made, ArgumentError, "track", partial(call, state_slots=after, track_slots=made.pick(2)))
    refused(made, ArgumentError, "track", partial(call, track_accepted=one))
    both = partial(call, state_slots=after, track_accepted=one)
    refused(made, ArgumentError, "track_slots", partial(both, track_slots=made.pick(2, 3)))


# ------------------------------------------------------------------------------------------------------- replay rings


RINGS = [name for name, window in EVERY_WINDOW.items() if window.protocol == "ring"]


def ring_of(made: Rig, slot: int, layer: int) -> torch.Tensor:
    """The replay ring of a slot: ``[window_rows, 2]``."""
    return made.sub.view("replay", layer, "page")[made.physical(slot), 0]


def put(made: Rig, slot: int, cursor: int, tokens: list[int]) -> None:
    """Store the inputs of a step's tokens in the rows of their positions, as a host does."""
    where = places(made)
    for layer in LAYERS:
        for n, token in enumerate(tokens):
            ring_of(made, slot, layer)[where.of(cursor, where.width - 1 + n)] = token + layer


def read(made: Rig, slot: int, cursor: int, count: int) -> list[list[int]]:
    """The first inputs of a step, of each layer, whose cursor that was."""
    where = places(made)
    rows = [where.of(cursor, where.width - 1 + n) for n in range(count)]
    return [[int(ring_of(made, slot, layer)[row, 1]) - layer for row in rows] for layer in LAYERS]


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize(("width", "drafts"), [(2, 5), (4, 4), (8, 2), (3, 8), (4, 1)])
def test_a_replay_ring(width: int, drafts: int, name: str, trees: bool) -> None:
    """The cursor that finds the window's rows finds the inputs; a commit moves none of them, but for a tree."""
    chance = random.Random(width * drafts)
    rows = width - 1 + drafts - 1
    ring = (ExtraField("replay", (rows, 2), "int32"),)
    made = rig(width, 3, layers=LAYERS, window=EVERY_WINDOW[name], verify_tokens=drafts, extra=ring, shared=True)
    cursors = made.sub.view("cursor", LAYERS[0], "page")
    for turn in range(12):
        slots = chance.sample([1, 2, 3, -1], 3)
        start = [int(cursors[made.physical(slot), 0, 0]) if slot > 0 else 0 for slot in slots]
        above = [[-1] + [chance.randrange(row) if trees else row - 1 for row in range(1, drafts)] for _ in slots]
        paths = [line(one, chance.randrange(drafts)) for one in above]
        tokens = [[1000 * turn + 100 * n + row for row in range(drafts)] for n in range(3)]
        parents = torch.tensor(above).flatten() if trees else None
        x = noise(turn, 3 * drafts, 3, dtype=torch.float32)
        for layer in LAYERS:
            made.conv.verify(layer, x, made.pick(*slots), parents=parents)
        for slot, cursor, own in zip(slots, start, tokens, strict=True):
            if slot > 0:
                put(made, slot, cursor, own)
        before = [made.sub.view("replay", layer, "page").clone() for layer in LAYERS]
        padded = torch.tensor([[*path, *[chance.randint(-9, 9)] * (drafts - len(path))] for path in paths])
        counts = [len(path) for path in paths]
        made.conv.commit(made.pick(*slots), torch.tensor(counts), path=padded if trees else None)
        for slot, cursor, own, path in zip(slots, start, tokens, paths, strict=True):
            if slot > 0:
                assert read(made, slot, cursor, len(path)) == [[own[row] for row in path]] * 2
                rest = set(range(rows)) - {places(made).of(cursor, width - 1 + n) for n in range(len(path))}
                for layer, old in zip(LAYERS, before, strict=True):
                    assert same(ring_of(made, slot, layer)[[*rest]], old[made.physical(slot), 0][[*rest]])
                assert cursors[made.physical(slot), 0, 0] == places(made).after(cursor, len(path))
        if not trees:
            after = [made.sub.view("replay", layer, "page") for layer in LAYERS]
            assert all(map(same, after, before))


@pytest.mark.parametrize("name", RINGS)
def test_a_tracked_slot_has_the_replay_ring_of_its_count(name: str) -> None:
    """Its rows are found by its own cursor, and a tree's are in the order of a chain."""
    ring = (ExtraField("replay", (5, 2), "int32"),)
    made = rig(3, 3, layers=LAYERS, window=EVERY_WINDOW[name], verify_tokens=4, extra=ring)
    x = noise(1, 4, 3, dtype=torch.float32)
    for layer in LAYERS:
        made.conv.verify(layer, x, made.pick(1), parents=torch.tensor([-1, 0, 0, 2]))
    put(made, 1, 0, [50, 51, 52, 53])
    path, tracked = torch.tensor([[0, 2, 3, 3]]), made.pick(4)
    made.conv.commit(made.pick(1), torch.tensor([3]), path=path, track_slots=tracked, track_accepted=torch.tensor([2]))
    assert read(made, 1, 0, 3) == [[50, 52, 53]] * 2
    assert read(made, 4, 0, 2) == [[50, 52]] * 2
    assert made.sub.view("cursor", 1, "page")[made.physical(4), 0, 0] == places(made).after(0, 2)
    assert same(live(made, 4)[0, 0], x[[0, 2]])


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize(("has", "elsewhere"), [(None, False), (False, False), (True, False), (True, True)])
def test_an_empty_sequence_takes_the_inputs_since_its_checkpoint(name: str, has: bool | None, elsewhere: bool) -> None:
    """No kernel of the host runs for it: its replay ring comes with the window, found by the new cursor."""
    ring = (ExtraField("replay", (5, 2), "int32"),)
    made = rig(3, 3, layers=LAYERS, window=EVERY_WINDOW[name], verify_tokens=4, extra=ring, state=(2,))
    cursors = made.sub.view("cursor", 1, "page")
    for slot, turns in ((1, 1), (2, 3)):
        for turn in range(turns):
            for layer in LAYERS:
                made.conv.verify(layer, noise(turn, 4, 3, dtype=torch.float32), made.pick(slot))
            cursor = int(cursors[made.physical(slot), 0, 0])
            put(made, slot, cursor, [100 * slot + 10 * turn + n for n in range(4)])
            made.commit(slot, accepted=[3])
    source = 1 if elsewhere else 2
    first = int(cursors[made.physical(source), 0, 0]) - 3
    pending = read(made, source, first, 3)
    initial = made.pick(1) if elsewhere else None
    for layer in LAYERS:
        flags = None if has is None else torch.tensor([has])
        made.conv.prefill(layer, torch.zeros(0, 3), torch.tensor([0, 0]), made.pick(2), flags, initial_slots=initial)
    made.commit(2)
    after = int(cursors[made.physical(2), 0, 0])
    assert read(made, 2, after - 3, 3) == (pending if has else [[-layer] * 3 for layer in LAYERS])
    assert same(live(made, 2), live(made, 1 if elsewhere else 2))


@pytest.mark.parametrize("protocol", ["offset", "rollback"])
def test_a_replay_ring_needs_a_ring(protocol: Any) -> None:
    ring = (ExtraField("replay", (5, 2), "int32"),)
    text = rf"spec 'conv' has a replay ring, which needs a window of the ring protocol, not '{protocol}' \(fix: use a"
    with pytest.raises(LayoutError, match=text):
        rig(3, 3, window=ConvStateLayout(protocol=protocol), verify_tokens=4, extra=ring)
