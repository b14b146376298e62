"""Which bytes verify and commit write: what a step or a count makes due, in the slots that were named, and no other."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.conv_oracle import Rig, line, noise, places, rig, same
from reference.kv_oracle import bits
from statehal.layout import ConvStateLayout
from statehal.spec import ExtraField
from statehal.testing.oracles.conv import Places

LAYERS, STATE, CHANNELS = (6, 1, 3), (2, 3), 5
EXTRA = (ExtraField("shift", (3,), "uint8"),)
WINDOWS = {
    f"{one.protocol} {one.window_order} {one.channel_multiple} {one.align}": one
    for plain in (ConvStateLayout(), ConvStateLayout(protocol="offset"), ConvStateLayout(protocol="rollback"))
    for one in (
        plain,
        replace(plain, window_order="channels_first", channel_multiple=4),
        replace(plain, channel_multiple=8, align=64),
    )
}
SHAPES = [(4, 3), (2, 4), (8, 2), (3, 6), (4, 1)]
FIELDS, SCRATCH = ("state", "shift"), (1, 2, 4, 6, 11, 12)
TREE = [-1, 0, 0, 2, 1, 3]
"""Cut to the drafts; its deepest path is 0, 2, 3, 5."""


@dataclass
class Bytes:
    """A pool of random bytes, and the bytes that are expected of it; slots have cursors of their own."""

    made: Rig
    where: Places
    cursors: list[int]

    def window(self, slot: int, layer: int) -> Tensor:
        """Rows of a slot's window, channels that pad included: ``[rows, channels]``, in the pool."""
        view = self.made.sub.view("conv", layer, "page")[self.made.physical(slot), 0]
        conv = self.made.sub.layout.conv
        assert conv is not None
        return view if conv.window_order == "rows_first" else view.t()

    def page(self, slot: int) -> Tensor:
        """All bytes of a slot, in the pool."""
        sub = self.made.sub
        start = sub.plan.region.offset + self.made.physical(slot) * sub.layout.page_bytes
        return self.made.pool.buffer[start : start + sub.layout.page_bytes]

    def other(self, name: str, slot: int, layer: int = LAYERS[0]) -> Tensor:
        """Another field's rows, in the pool."""
        return self.made.sub.view(name, layer, "page")[self.made.physical(slot), 0]

    def live(self, slot: int, layer: int) -> Tensor:
        return self.window(slot, layer)[self.where.live(self.cursors[slot]), :CHANNELS]

    def position(self, slot: int, layer: int, number: int) -> Tensor:
        """What lies at a position from 1 on of the step."""
        return self.window(slot, layer)[self.where.of(self.cursors[slot], number)]


def make(name: str, width: int, drafts: int, dtype: str) -> Bytes:
    made = rig(
        width, CHANNELS, dtype, LAYERS, WINDOWS[name], shared=True, verify_tokens=drafts, state=STATE, extra=EXTRA,
        slots=12,
    )  # fmt: skip
    where = places(made)
    noise = bits(made.pool.buffer.numel(), dtype=torch.uint8, seed=5) & 0xBF  # finite in every dtype
    noise[: made.sub.plan.region.slab_bytes] = 0
    made.pool.buffer.copy_(noise)
    most = {"ring": where.rows, "offset": drafts, "rollback": 1}[where.protocol]
    made_bytes = Bytes(made, where, [0, *(slot % most for slot in range(1, 13))])
    for slot in range(1, 13):
        made_bytes.other("cursor", slot)[0] = made_bytes.cursors[slot]
    return made_bytes


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize(("width", "drafts"), SHAPES)
@pytest.mark.parametrize("name", WINDOWS)
def test_verify(name: str, width: int, drafts: int, trees: bool) -> None:
    """One layer's rows of the history and of the step's tokens, in the order of their positions."""
    made = make(name, width, drafts, "bfloat16")
    buffer, taps = made.made.pool.buffer, width - 1
    slots, lengths = (3, -1, 5, 0, 4, 7), (drafts, 2, 1, drafts, 0, drafts + 1)
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    x = noise(3, int(ends[-1]) + 2, CHANNELS, dtype=torch.bfloat16)
    parents = torch.tensor([(TREE[n] if trees else n - 1) if n < drafts else 0 for one in lengths for n in range(one)])
    for layer in LAYERS:
        before = buffer.clone()
        above = torch.cat([parents, torch.zeros(2, dtype=torch.int64)]) if trees else None
        made.made.conv.verify(layer, x, made.made.pick(*slots), query_start_loc=ends, parents=above)
        got = buffer.clone()
        buffer.copy_(before)
        for slot, start, length in zip(slots, ends.tolist(), lengths, strict=False):
            if slot > 0 and length > 0:
                history = made.live(slot, layer).clone()
                rows = torch.cat([history, x[start : start + min(length, drafts)]])
                for n in range(1, len(rows)):
                    made.position(slot, layer, n)[:CHANNELS] = rows[n]
        assert len(rows) == taps + drafts
        assert same(got, buffer)
    made.made.pool.check()


def path_of(drafts: int, trees: bool, last: int) -> list[int]:
    parents = [TREE[n] if trees else n - 1 for n in range(drafts)]
    return line(parents, last % drafts)


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("last", range(4))
@pytest.mark.parametrize(("width", "drafts"), SHAPES)
@pytest.mark.parametrize("name", WINDOWS)
def test_commit(name: str, width: int, drafts: int, last: int, trees: bool) -> None:
    """Cursors, what the protocol or a path moves, recurrent rows, and whole checkpoints in tracked slots."""
    made = make(name, width, drafts, "float16")
    where, taps, pick, buffer = made.where, width - 1, made.made.pick, made.made.pool.buffer
    slots, tracks = (3, -1, 5, 7), (8, 9, 10, 0)
    parents = [TREE[n] if trees else n - 1 for n in range(drafts)]
    paths = [line(parents, (last + n) % drafts) for n in (0, 1, 2, 5)]
    after = [(SCRATCH * 2)[n : n + drafts] for n in range(4)]
    counts, tracked = [len(path) for path in paths], [len(paths[0]), 1, 1, 1]
    due: list[tuple[Tensor, Any, Tensor]] = []
    free: list[Tensor] = []
    for slot, to, own, path, ends in zip(slots, tracks, after, paths, zip(counts, tracked, strict=True), strict=True):
        for target, count in ((slot, ends[0]), (to, ends[1])):
            if slot <= 0 or target <= 0:
                continue
            cursor = where.after(made.cursors[slot], count)
            for layer in LAYERS:
                chain = [*range(1, taps), *(taps + row for row in path[:count])][count - 1 :]
                rows = torch.stack([made.position(slot, layer, n)[:CHANNELS] for n in chain])
                due.append((made.window(target, layer)[:, :CHANNELS], where.live(cursor), rows))
                due += [
                    (made.other(one, target, layer), ..., made.other(one, own[path[count - 1]], layer).clone())
                    for one in FIELDS
                ]
                if target == slot and trees and where.protocol != "rollback":
                    free += [made.position(slot, layer, n) for n in range(taps, count)]  # what a path has passed
            if target != slot:
                free.append(made.page(target))  # what is not live in it is of no account
            due.append((made.other("cursor", target), ..., torch.tensor([cursor], dtype=torch.int32)))
    before = buffer.clone()
    made.made.conv.commit(
        pick(*slots), torch.tensor(counts),
        path=torch.tensor([[*path, *[-5] * (drafts - len(path))] for path in paths]) if trees else None,
        state_slots=pick(*(slot for own in after for slot in own)).reshape(4, drafts),
        track_slots=pick(*tracks), track_accepted=torch.tensor(tracked),
    )  # fmt: skip
    got, left = buffer.clone(), [one.clone() for one in free]
    buffer.copy_(before)
    for view, value in zip(free, left, strict=True):
        view.copy_(value)
    for view, index, value in due:
        view[index] = value
    assert same(got, buffer)
    made.made.pool.check()
