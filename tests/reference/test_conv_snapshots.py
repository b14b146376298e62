"""Chunked prefill, and states saved on the way: bit for bit what shorter prefills leave."""

from functools import cache
from typing import Literal

import pytest
import torch

from reference.conv_oracle import EVERY_WINDOW, Rig, noise, places, refused, rig, same, whole
from statehal.errors import ArgumentError, WrongIdSpace
from statehal.layout import ConvStateLayout

Protocol = Literal["ring", "offset", "rollback"]
PROTOCOLS: tuple[Protocol, ...] = ("ring", "offset", "rollback")
DRAFTS, YES = 4, torch.tensor([True])


def tokens(width: int) -> int:
    """A prompt's length: more than two histories."""
    return 2 * width + 3


@cache
def prompt(width: int) -> torch.Tensor:
    return noise(width, tokens(width), 3, dtype=torch.float32)


@pytest.fixture
def made(width: int, protocol: Protocol) -> Rig:
    """Slots whose cursors have moved, with what other requests left in them."""
    made = rig(
        width, 3, layers=(2, 0), window=ConvStateLayout(protocol=protocol), verify_tokens=DRAFTS, slots=8, shared=True
    )
    for layer in (2, 0):
        made.conv.prepare(layer, noise(layer, 3, width, dtype=torch.float32), noise(9, 3, dtype=torch.float32))
        made.conv.verify(layer, noise(layer + 5, 8 * DRAFTS, 3, dtype=torch.float32), made.slots)
    made.conv.commit(made.slots, torch.tensor([1, 3, 2, 4, 1, 2, 3, 4]))
    return made


def live(made: Rig, *slots: int) -> torch.Tensor:
    return made.conv.read_state(made.pick(*slots))


def prefill(made: Rig, x: torch.Tensor, slot: int, source: int | None = None) -> torch.Tensor:
    """Outputs of both layers, after the state of a source, or after nothing."""
    loc, slots = torch.tensor([0, len(x)]), made.pick(slot)
    start = {} if source is None else {"has_initial_state": YES, "initial_slots": made.pick(source)}
    got = [made.conv.prefill(layer, x, loc, slots, **start) for layer in (2, 0)]  # type: ignore[arg-type]
    made.commit(slot)
    return torch.stack(got)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("width", range(2, 9))
def test_chunks_are_the_whole(made: Rig, width: int) -> None:
    """Split at every position, ends included, in place and from another slot; that one keeps its state."""
    x = prompt(width)
    whole = prefill(made, x, 1)
    for split in range(len(x) + 1):
        first = prefill(made, x[:split], 2)
        between = live(made, 2)
        moved = prefill(made, x[split:], 3, 2)
        assert same(live(made, 2), between)
        rest = prefill(made, x[split:], 2, 2)
        assert same(torch.cat([first, rest], 1), whole)
        assert same(moved, rest)
        state = live(made, 1, 2, 3)
        assert same(state, state[:, :1].expand(state.shape).contiguous())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("width", range(2, 9))
def test_snapshots_are_what_a_prefill_of_that_many_tokens_leaves(made: Rig, width: int) -> None:
    """Of every count, 0 and the length included, and at once; a step follows on each, and then another."""
    x = prompt(width)
    history = prefill(made, x.flip(0), 1)
    assert history.any()
    for source in (None, 1):
        whole = prefill(made, x, 2, source)
        wanted = live(made, 2)
        for end in range(len(x) + 1):
            prefill(made, x[:end], 3, source)
            initial = {} if source is None else {"has_initial_state": YES, "initial_slots": made.pick(source)}
            for n, layer in enumerate((2, 0)):
                got = made.conv.prefill(
                    layer, x, torch.tensor([0, len(x)]), made.pick(4),
                    snapshots=(torch.tensor([0]), torch.tensor([end]), made.pick(5)), **initial,  # type: ignore[arg-type]
                )  # fmt: skip
                assert same(got, whole[n])
            assert same(live(made, 5), live(made, 3))
            made.commit(4)
            assert same(live(made, 4), wanted)
            assert same(live(made, 5), live(made, 3))
            for token in range(2):
                both = [made.conv.decode(layer, x[[token, token]], made.pick(3, 5)) for layer in (2, 0)]
                assert all(same(one[:1], one[1:]) for one in both)
                made.commit(3, 5)
                assert same(live(made, 5), live(made, 3))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("width", [2, 4, 8])
def test_a_snapshot_is_where_a_chunk_would_have_ended(made: Rig, width: int) -> None:
    """Split at the snapshot: the rest goes on from it, in a packed batch with others before and after."""
    x = prompt(width)
    whole = prefill(made, x, 1)
    packed, loc = torch.cat([x[3:], x, x[:2]]), torch.tensor([0, len(x) - 3, 2 * len(x) - 3, 2 * len(x) - 1])
    for end in range(len(x) + 1):
        snapshots = torch.tensor([1, 2, 1]), torch.tensor([end, 1, len(x)]), made.pick(5, 6, 7)
        for layer in (2, 0):
            made.conv.prefill(layer, packed, loc, made.pick(2, 3, 4), snapshots=snapshots)
        made.commit(2, 3, 4)
        assert same(live(made, 3, 7), live(made, 1, 1))
        rest = prefill(made, x[end:], 8, 5)
        assert same(rest, whole[:, end:])
        assert same(live(made, 8), live(made, 1))
        prefill(made, x[:1], 8)
        assert same(live(made, 6), live(made, 8))


@pytest.mark.parametrize("name", EVERY_WINDOW)
@pytest.mark.parametrize("width", [2, 5])
def test_which_bytes_a_snapshot_writes(width: int, name: str) -> None:
    """The live rows at the slot's present cursor, of this layer: no cursor, no recurrent row, nothing for padding."""
    made = rig(width, 3, "bfloat16", (6, 1), EVERY_WINDOW[name], verify_tokens=3, state=(2, 2), shared=True, slots=7)
    where, buffer = places(made), made.pool.buffer
    for layer in (6, 1):
        made.conv.verify(layer, noise(layer, 21, 3, dtype=torch.bfloat16), made.slots)
        made.sub.view("state", layer, "page")[[made.physical(slot) for slot in range(1, 8)]] = 7.0
    made.conv.commit(made.slots, torch.tensor([1, 2, 3, 1, 2, 3, 3]))
    x = noise(50, 9, 3, dtype=torch.bfloat16)
    has, slots = torch.tensor([True, False, True]), made.pick(1, -1, 2)
    loc, before, history = torch.tensor([0, 5, 7, 9]), buffer.clone(), live(made, 1, 2)[0]
    made.conv.prefill(6, x, loc, slots, has)
    plain = buffer.clone()
    buffer.copy_(before)
    triples = ((0, 0, 4), (0, 5, 5), (2, 1, 6), (1, 1, 7), (0, 2, -1), (2, 2, 0), (2, 2, 3))
    sequence, ends, to = zip(*triples, strict=True)
    saved = torch.tensor(sequence), torch.tensor(ends, dtype=torch.int32), made.pick(*to)
    made.conv.prefill(6, x, loc, slots, has, snapshots=saved)
    got = buffer.clone()
    buffer.copy_(plain)
    view = made.sub.view("conv", 6, "page")
    rows_first = EVERY_WINDOW[name].window_order == "rows_first"
    for n, end, slot in triples:
        if n != 1 and slot > 0:
            start = history[0 if n == 0 else 1]
            rows = torch.cat([start, x[loc[n] : loc[n] + end]])[end:]
            page = made.physical(slot)
            window = view[page, 0] if rows_first else view[page, 0].t()
            window[where.live(int(made.sub.view("cursor", 6, "page")[page, 0, 0])), :3] = rows
    assert same(got, buffer)
    made.pool.check()


def test_what_snapshots_are_refused() -> None:
    made, other = rig(4, 3, layers=(0,)), rig(4, 3)
    x, loc = noise(1, 5, 3, dtype=torch.float32), torch.tensor([0, 2, 5])
    one, two, slots = torch.tensor([1]), torch.tensor([1, 1]), made.pick(1, 2)

    def refuse(error: type[Exception], *snapshots: object) -> None:
        call = made.conv.prefill
        refused(made, error, "snapshots", lambda: call(0, x, loc, slots, snapshots=snapshots))  # type: ignore[arg-type]

    refuse(ArgumentError, one, two, made.pick(3))
    refuse(ArgumentError, two, two, made.pick(3))
    refuse(ArgumentError, one.double(), one, made.pick(3))
    refuse(ArgumentError, one, one.double(), made.pick(3))
    with pytest.raises(WrongIdSpace):
        made.conv.prefill(0, x, loc, slots, snapshots=(one, one, other.pick(3)))
    empty = torch.tensor([], dtype=torch.int64)
    assert made.conv.prefill(0, x, loc, slots, snapshots=(empty, empty, made.pick())).any()


@pytest.mark.parametrize("protocol", ["ring", "offset", "rollback"])
@pytest.mark.parametrize("first", [True, False])
def test_an_entry_that_saves_nothing_takes_nothing_from_one_that_does(protocol: Protocol, first: bool) -> None:
    """Two entries name one slot; of one of them the sequence, or the count, does not exist."""
    made = rig(3, 3, window=ConvStateLayout(protocol=protocol), slots=4)
    x, loc, slots = whole(1, 4, 3), torch.tensor([0, 2, 4]), made.pick(1, -1)
    for other, count in ((1, 1), (7, 1), (-1, 0), (0, 3), (0, -1)):
        made.conv.zero_slots(made.pick(3))
        order = [0, 1] if first else [1, 0]
        points = torch.tensor([0, other])[order], torch.tensor([2, count])[order], made.pick(3, 3)
        made.conv.prefill(0, x, loc, slots, snapshots=points)
        assert torch.equal(made.conv.read_state(made.pick(3))[0, 0], x[:2])
