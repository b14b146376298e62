"""A random run of steps in one pool, and sequential decode of what they accept in another: both must agree."""

import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from reference.conv_oracle import Model, Rig, Rows, convolve, line, lists, noise, rig, same, whole
from reference.conv_recurrence import STATE, VALUES, Recurrence
from reference.conv_requests import KINDS, MAIN, PADDING, Draw, Request, draw
from statehal.ids import KernelIds
from statehal.layout import ConvStateLayout

CHANNELS = 3


class Run:
    """A pool with drafts, a twin without, and what every slot's recurrent state must be."""

    def __init__(
        self,
        seed: int,
        width: int,
        drafts: int,
        protocol: Literal["ring", "offset", "rollback"],
        dtype: torch.dtype,
        check: bool,
    ) -> None:
        self.chance = chance = random.Random(seed)
        self.width, self.drafts, self.dtype = width, drafts, dtype
        self.exact, self.seen, self.seed = chance.random() < 0.5, Counter[str](), seed * 1000
        self.layers = chance.choice([(0,), (0,), (5, 2)])
        self.index = torch.int32 if chance.random() < 0.5 else torch.int64
        order: Literal["rows_first", "channels_first"] = chance.choice(["rows_first", "channels_first"])
        window = ConvStateLayout(
            order, chance.choice([1, 4]), protocol, chance.choice([("page",), ("row",), ("block",)])
        )
        state = None if chance.random() < 0.3 else STATE
        name = "float32" if chance.random() < 0.2 else str(dtype).removeprefix("torch.")  # wider than the inputs
        slots = MAIN + (6 * drafts if state else 0)
        self.made = rig(
            width, CHANNELS, name, self.layers, window, shared=chance.random() < 0.5, slots=slots, state=state,
            state_dtype=chance.choice(["float32", name]), verify_tokens=drafts, check=check,
        )  # fmt: skip
        self.made.index = self.index
        self.twin = rig(width, CHANNELS, name, self.layers, slots=MAIN)
        activation: Literal["silu"] | None = None if self.exact or chance.random() < 0.5 else "silu"
        self.models: list[Model] = []
        for layer in self.layers:
            weight, bias = self.values(CHANNELS, width), self.values(CHANNELS)
            for side in (self.made, self.twin):
                side.conv.prepare(layer, weight, bias, activation=activation)
            self.models.append(Model(width, CHANNELS, lists(weight), lists(bias)))
        self.host = Recurrence(self.made, self.layers, drafts, chance) if state else None
        self.seen.update([f"check {self.made.pool.checking}", f"state {state}", f"exact {self.exact}"])

    def values(self, *shape: int) -> Tensor:
        """Other numbers every time, whole ones where models follow the run."""
        self.seed += 1
        return (whole if self.exact else noise)(self.seed, *shape, dtype=self.dtype)

    def ints(self, *values: int) -> Tensor:
        """An index tensor, at times a column of something wider."""
        made = torch.tensor(values, dtype=self.index)
        return torch.stack([made, made + 99], 1)[:, 0] if self.chance.random() < 0.1 else made

    # ------------------------------------------------------------------------------------------------ the steps

    def take(self, step: Draw, layer: int, x: Tensor) -> Tensor:
        """Let the backend do a layer of the step; returns the rows, of padding too."""
        conv, pick, outputs = self.made.conv, self.made.pick, []
        for kind in KINDS:
            group = step.of(kind)
            if not group and self.chance.random() < 0.9:
                continue
            slots = pick(*(one.slot for one in group))
            ends = list(accumulate((len(one.parents) for one in group), initial=0))
            count = ends[-1]
            rows = x[group[0].start : group[0].start + count] if group else x[:0]
            beyond = self.chance.choice([0, 0, 2]) if kind == "prefill" or (kind == "verify" and step.ragged) else 0
            rows = torch.cat([rows, rows.new_full((beyond, CHANNELS), float("nan"))])
            out = self.chance.choice([None, rows, torch.full_like(rows, 5)])
            if kind == "prefill":
                got = self.prefill(self.made, layer, group, rows, self.ints(*ends), out)
            elif kind == "decode":
                got = conv.decode(layer, rows, slots, out=out)
            else:
                parents = [above for one in group for above in one.parents] + [0] * beyond
                got = conv.verify(
                    layer, rows, slots,
                    query_start_loc=self.ints(*ends) if step.ragged else None,
                    parents=self.ints(*parents) if step.trees else None, out=out,
                )  # fmt: skip
            assert out is None or got.data_ptr() == out.data_ptr()
            assert not got[count:].any()
            outputs.append(got[:count])
        return torch.cat(outputs)

    def prefill(
        self, side: Rig, layer: int, group: list[Request], x: Tensor, ends: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """A layer of prompts; the twin knows no snapshots."""
        saved = [(n, end, slot) for n, one in enumerate(group) for end, slot in one.snapshots]
        snapshots = None
        if saved and side is self.made:
            sequence, end, slot = zip(*saved, strict=True)
            snapshots = self.ints(*sequence), self.ints(*end), side.pick(*slot)
        has = torch.tensor([one.source is not None for one in group], dtype=torch.bool)
        sources = side.pick(*(one.source or one.slot for one in group))
        slots = side.pick(*(one.slot for one in group))
        return side.conv.prefill(layer, x, ends, slots, has, initial_slots=sources, snapshots=snapshots, out=out)

    def commit(self, step: Draw) -> None:
        """End the step of the pool with drafts."""
        group = self.chance.sample(step.requests, len(step.requests))
        path = [(one.path if one.kind == "verify" else [0]) for one in group]
        more: dict[str, KernelIds | Tensor] = {}
        if step.trees:
            rest = [[*rows, *(self.chance.randrange(-1, self.drafts) for _ in range(self.drafts))] for rows in path]
            more["path"] = self.ints(*(row for rows in rest for row in rows[: self.drafts])).view(-1, self.drafts)
        if self.host and (
            any(one.scratch for one in group) or (self.drafts > 1 and any(one.track[0] for one in group))
        ):
            columns = [[*one.scratch, *[self.chance.choice(PADDING)] * self.drafts][: self.drafts] for one in group]
            ids = self.made.pick(*(slot for rows in columns for slot in rows))
            more["state_slots"] = ids.reshape(-1, self.drafts)
        if any(one.track[0] for one in group):
            more["track_slots"] = self.made.pick(*(one.track[0] for one in group))
            more["track_accepted"] = self.ints(*(one.track[1] for one in group))
        counts = self.ints(*(one.accepted if one.slot > 0 else self.chance.randint(0, 9) for one in group))
        self.made.conv.commit(self.made.pick(*(one.slot for one in group)), counts, **more)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------ what must follow

    def sequential(self, step: Draw, xs: list[Tensor]) -> list[Tensor]:
        """Decode the accepted tokens one by one in the twin; rows that it does not compute stay NaN."""
        twin, outputs = self.twin, [torch.full_like(x, float("nan")) for x in xs]
        real = [one for one in step.requests if one.slot > 0]
        prompts = [one for one in real if one.kind == "prefill"]
        saved = [replace(one, slot=to, parents=one.parents[:end]) for one in prompts for end, to in one.snapshots]
        for group in filter(None, (saved, prompts)):  # in this order: a prompt may overwrite what it goes on from
            ends = self.ints(*accumulate((len(one.parents) for one in group), initial=0))
            rows = [row for one in group for row in one.rows]
            for layer, x, out in zip(self.layers, xs, outputs, strict=True):
                out[rows] = self.prefill(twin, layer, group, x[rows], ends)
            twin.commit(*(one.slot for one in group))
        self.copy([one for one in prompts if one.tracked])
        for turn in range(self.drafts):
            group = [one for one in real if one.kind != "prefill" and turn < len(one.path)]
            if not group:
                break
            rows, slots = [one.start + one.path[turn] for one in group], twin.pick(*(one.slot for one in group))
            for layer, x, out in zip(self.layers, xs, outputs, strict=True):
                out[rows] = twin.conv.decode(layer, x[rows], slots)
            twin.conv.commit(slots, torch.ones(len(group), dtype=torch.int64))
            self.copy([one for one in group if one.tracked and one.track[1] == turn + 1])
        return outputs

    def copy(self, group: list[Request]) -> None:
        """Let the twin copy slots to those that track them."""
        if group:
            pick = self.twin.pick
            self.twin.conv.copy_slots(pick(*(one.slot for one in group)), pick(*(one.track[0] for one in group)))

    def definition(self, step: Draw, xs: list[Tensor], got: list[Tensor]) -> None:
        """Compare every row with convolution by definition, and take the step into the models."""
        for model, x, y in zip(self.models, xs, got, strict=True):
            new: dict[int, Rows] = {}
            values = lists(x)
            for one in step.requests:
                own = values[one.start : one.rows.stop]
                outputs = model.step(one.slot, own, one.source if one.kind == "prefill" else one.slot)
                if one.slot > 0:
                    if one.kind == "verify":
                        history = model.history(one.slot)
                        lines = [[own[n] for n in line(one.parents, row)] for row in range(len(own))]
                        outputs = [convolve(history, rows, model.weight, model.bias, False)[-1] for rows in lines]
                        for slot, count in ((one.slot, one.accepted), (one.tracked, one.track[1])):
                            new[slot] = (history + [own[n] for n in one.path[:count]])[count:]
                    else:
                        new[one.tracked] = new[one.slot] = model.next[one.slot]
                    start = [[0.0] * CHANNELS] * (self.width - 1) if one.source is None else model.history(one.source)
                    new |= {slot: (start + own[:count])[count:] for count, slot in one.snapshots}
                assert lists(y[one.start : one.rows.stop]) == outputs
            new.pop(0, None)
            model.live |= new

    def compare(self) -> None:
        """The live rows of every slot."""
        slots = self.made.pick(*range(1, MAIN + 1))
        state = self.made.conv.read_state(slots)
        assert same(state, self.twin.conv.read_state(self.twin.slots))
        if self.exact:
            assert lists(state) == [[model.history(slot) for slot in range(1, MAIN + 1)] for model in self.models]

    def round(self, step: Draw | None = None) -> None:
        """One step, of all layers, and its commit."""
        step = step or draw(self.chance, self.width, self.drafts, self.made.pool.checking)
        count = step.requests[-1].rows.stop
        xs = [self.values(count, CHANNELS) for _ in self.layers]
        for one in step.requests:
            for x in xs if one.slot <= 0 else ():
                x[one.rows] = float("nan")
        got = [self.take(step, layer, x) for layer, x in zip(self.layers, xs, strict=True)]
        due = self.host.run(step, [self.chance.randrange(VALUES) for _ in range(count)]) if self.host else {}
        self.commit(step)
        if self.host:
            self.host.compare(due)
        wanted = self.sequential(step, xs)
        kept = [one.start + row for one in step.requests if one.slot > 0 for row in one.path]
        padding = [row for one in step.requests if one.slot <= 0 for row in one.rows]
        for y, z in zip(got, wanted, strict=True):
            assert same(y[kept], z[kept])
            assert not y[padding].any()
        if self.exact:
            self.definition(step, xs, got)
        self.compare()
        self.count(step)

    def count(self, step: Draw) -> None:
        """Remember what was drawn."""
        for one in step.requests:
            self.seen[f"{one.kind}{' of padding' if one.slot <= 0 else ''}"] += 1
            if one.slot > 0:
                self.seen[f"accepted {one.accepted} of {self.drafts}"] += one.kind == "verify"
                self.seen["tracked"] += bool(one.tracked)
                self.seen["tracked less than accepted"] += bool(one.tracked) and one.track[1] < one.accepted
                self.seen["not tracked"] += bool(one.track[0] and not one.tracked)
                self.seen["snapshots"] += len(one.snapshots)
                self.seen["prefix"] += one.source is not None and one.source != one.slot
                self.seen["rejected in a tree"] += one.path != list(range(len(one.path)))
        self.seen[f"ragged {step.ragged}, trees {step.trees}"] += any(one.kind == "verify" for one in step.requests)

    def decode_twice(self) -> None:
        """Two plain decodes in a row of all slots: a cursor that one decode forgets shows only at the second."""
        for _ in range(2):
            requests = [Request("decode", slot, [-1], [0], start=slot - 1) for slot in range(1, MAIN + 1)]
            self.round(Draw(requests, False, False))
