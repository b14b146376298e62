"""Steps of a backend, held against convolution by definition: outputs, live rows, recurrent rows, bytes."""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor

from statehal.testing.conv.host import Host
from statehal.testing.conv.requests import KINDS, PADDING, SLOTS, Request, Step
from statehal.testing.conv.rig import Rig, lists, same
from statehal.testing.conv.setups import Setup
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.conv import Definition, Output, Rows
from statehal.testing.oracles.conv_bytes import Span, without
from statehal.testing.oracles.rounding import nearest, unit
from statehal.testing.target import Target

T = TypeVar("T")


class Run:
    """A pool in which steps are run, and what every slot must hold.

    Attributes:
        definitions: by model layer id.
        host: of a spec with recurrent rows.
    """

    def __init__(self, target: Target, setup: Setup) -> None:
        recurrent = bool(setup.spec.state or setup.spec.extra)
        self.setup, self.drafts, self.layers = setup, setup.spec.verify_tokens, setup.spec.layers
        self.rig = Rig(target, setup, SLOTS + (4 * self.drafts if recurrent else 0))
        self.definitions = {layer: Definition(setup.spec.channels, self.rig.taps(layer)) for layer in self.layers}
        self.host = Host(self.rig) if recurrent else None

    def round(self, step: Step) -> None:
        """One step of all layers, its commit, and what must follow."""
        xs = {layer: self.rig.values(step.tokens, self.setup.spec.channels) for layer in self.layers}
        for x in xs.values():
            for one in step.requests:
                if one.slot <= 0:
                    x[one.rows] = float("nan")
        outputs = {layer: self.take(step, layer, xs[layer]) for layer in self.layers}
        due = self.host.run(step) if self.host else {}
        self.commit(step)
        if self.host:
            self.host.compare(due)
        self.judge(step, xs, outputs)

    def rounds(self, steps: tuple[Step, ...]) -> None:
        """Several steps."""
        for step in steps:
            self.round(step)

    def decode_twice(self) -> None:
        """Two plain decodes in a row of all slots: a cursor that one decode forgets shows only at the second."""
        for _ in range(2):
            self.round(Step([Request("decode", slot, [-1], [0], start=slot - 1) for slot in range(1, SLOTS + 1)]))

    # ------------------------------------------------------------------------------------------------ the steps

    def take(self, step: Step, layer: int, x: Tensor) -> Tensor:
        """Let the backend do a layer of the step; returns a row for each of x's, on the host."""
        outputs = []
        for kind in KINDS:
            group = step.of(kind)
            if group or step.idle_calls:
                outputs.append(self.operate(step, layer, kind, group, x))
        return torch.cat(outputs)

    def operate(self, step: Step, layer: int, kind: str, group: list[Request], x: Tensor) -> Tensor:
        """One operation for some requests; rows of no request stand around theirs, and must come out as zeros."""
        own = [row for one in group for row in one.rows]
        loose = kind == "prefill" or (kind == "verify" and step.ragged)
        before, beyond = (step.before, step.beyond) if loose else (0, 0)
        rows = torch.cat([x[:0].new_full((n, x.shape[1]), float("nan")) if n else x[:0] for n in (before, 0, beyond)])
        rows = torch.cat([rows[:before], x[own], rows[before:]])
        ends = [before + end for end in accumulate((len(one.parents) for one in group), initial=0)]
        wide = torch.full((len(rows), 3 * x.shape[1]), 7.0, dtype=x.dtype) if step.strided else rows
        given = wide[:, x.shape[1] : 2 * x.shape[1]] if step.strided else wide
        given.copy_(rows)
        wide = self.rig.target.on_device(wide)
        given = wide[:, x.shape[1] : 2 * x.shape[1]] if step.strided else wide
        out = {"new": None, "x": given, "other": torch.full_like(given, 5)}[step.out]
        parents = [0] * before + [above for one in group for above in one.parents] + [0] * beyond
        more: dict[str, Any] = {"out": out}
        if kind == "verify":
            more["query_start_loc"] = self.rig.ints(ends) if step.ragged else None
            more["parents"] = self.rig.ints(parents) if step.trees else None
        what = f"{kind} of layer {layer}, slots {[one.slot for one in group]}, ends {ends}"
        slots = self.rig.pick([one.slot for one in group])

        def call() -> Tensor:
            if kind == "prefill":
                return self.prefill(self.rig, layer, group, given, self.rig.ints(ends), out)
            return getattr(self.rig.conv, kind)(layer, given, slots, **more)  # type: ignore[no-any-return]

        got = self.called(what, lambda: self.touched(kind, layer, group), call)
        assert (got.dtype, got.shape) == (x.dtype, rows.shape), f"{what}: a {got.dtype} {list(got.shape)}"
        result = got.detach().cpu().clone()
        if out is not None:
            assert same(out, result), f"{what}: out does not hold the outputs that were returned"
        if out is not given:
            assert same(given, rows), f"{what}: x was changed"
        if step.strided:
            rest = torch.cat([wide[:, : x.shape[1]], wide[:, 2 * x.shape[1] :]])
            assert bool((rest == 7).all()), f"{what}: elements beside those of x were changed"
        around = torch.cat([result[:before], result[before + len(own) :]])
        assert not around.any(), f"{what}: rows before the first sequence or past the last are not zero: {around}"
        return result[before : before + len(own)]

    def prefill(
        self, rig: Rig, layer: int, group: list[Request], x: Tensor, ends: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """A layer of prompts, in this pool or in another."""
        saved = [(n, end, slot) for n, one in enumerate(group) for end, slot in one.snapshots]
        more: dict[str, Any] = {}
        if saved and rig is self.rig:
            sequence, end, slot = zip(*saved, strict=True)
            more["snapshots"] = rig.ints(sequence), rig.ints(end), rig.pick(slot)
        has = None
        if any(one.source is not None for one in group) or rig.chance.random() < 0.5:
            has = rig.bools([one.source is not None for one in group])
        if has is not None and any(one.source not in (None, one.slot) for one in group):
            more["initial_slots"] = rig.pick([one.slot if one.source is None else one.source for one in group])
        return rig.conv.prefill(layer, x, ends, rig.pick([one.slot for one in group]), has, out=out, **more)

    def commit(self, step: Step) -> None:
        """End the step."""
        rig, group = self.rig, self.rig.chance.sample(step.requests, len(step.requests))
        path = [one.path if one.kind == "verify" else [0] for one in group]
        more: dict[str, Any] = {}
        if step.trees:
            rest = [[*rows, *(rig.chance.randrange(-1, self.drafts) for _ in range(self.drafts))] for rows in path]
            more["path"] = rig.ints([row for rows in rest for row in rows[: self.drafts]]).view(-1, self.drafts)
        tracks = any(one.track[0] for one in group)
        if self.host and (any(one.scratch for one in group) or (self.drafts > 1 and tracks)):
            columns = [[*one.scratch, *[rig.chance.choice(PADDING)] * self.drafts][: self.drafts] for one in group]
            more["state_slots"] = rig.pick([slot for row in columns for slot in row]).reshape(-1, self.drafts)
        if tracks:
            more["track_slots"] = rig.pick([one.track[0] for one in group])
            more["track_accepted"] = rig.ints([one.track[1] for one in group])
        counts = [one.accepted if one.slot > 0 else rig.chance.randint(0, 9) for one in group]
        slots = [one.slot for one in group]
        what = f"commit of slots {slots}, accepted {counts}, path {path if step.trees else None}"

        def call() -> None:
            rig.conv.commit(rig.pick(slots), rig.ints(counts), **more)

        self.called(what, lambda: self.committed(group, more), call)

    # ------------------------------------------------------------------------------------------------ what must follow

    def called(self, what: str, spans: Callable[[], list[Span]], call: Callable[[], T]) -> T:
        """Call the backend; ``spans`` says which bytes may change."""
        return call()

    def unchanged(self, what: str, before: bytearray, spans: list[Span]) -> None:
        """Hold the pool to an earlier image of it, but for some bytes."""
        different = first_difference(self.rig.pool, before, without(self.rig.image(), before, spans))
        assert not different, f"{what} changed what it does not own: {different}"

    def touched(self, kind: str, layer: int, group: list[Request]) -> list[Span]:
        """Bytes that an operation may change: windows of a layer; of an empty prompt what else the layer has."""
        found: list[Span] = []
        for one in group:
            if one.slot <= 0:
                continue
            empty = kind == "prefill" and not one.parents
            names = [field.name for field in self.rig.sub.layout.fields if empty and field.name != "cursor"]
            for slot in (one.slot, *(to for _, to in one.snapshots)):
                own = names if slot == one.slot and names else ["conv"]
                found += self.rig.bytes.spans(own, self.rig.pages[slot], [layer])
        return found

    def committed(self, group: list[Request], more: Mapping[str, Any]) -> list[Span]:
        """Bytes that a commit may change: windows, cursors, and with ``state_slots`` recurrent rows; whole tracks."""
        pages, names = self.rig.pages, ["conv", "cursor"]
        names += self.rig.bytes.recurrent if "state_slots" in more else []
        found = [span for one in group if one.slot > 0 for span in self.rig.bytes.spans(names, pages[one.slot])]
        return found + [span for one in group if one.tracked for span in self.rig.bytes.whole(pages[one.tracked])]

    def judge(self, step: Step, xs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> None:
        """Compare every row with the definition, take the step into it, and compare the live rows."""
        for layer, definition in self.definitions.items():
            x, got = lists(xs[layer]), lists(outputs[layer])
            new: dict[int, Rows] = {}
            for one in step.requests:
                own, rows = x[one.rows.start : one.rows.stop], got[one.rows.start : one.rows.stop]
                what = f"{one.kind} of layer {layer}, slot {one.slot}"
                if one.slot <= 0:
                    assert not any(map(any, rows)), f"{what}: rows of padding are not zero: {rows}"
                    continue
                most = self.drafts if one.kind == "verify" else len(own)
                due = definition.outputs(one.origin, own[:most], one.parents)
                self.agree(f"{what}, after slot {one.origin}, parents {one.parents}", rows[:most], due)
                assert not any(map(any, rows[most:])), f"{what}: rows past the {most}th are not zero: {rows[most:]}"
                new[one.slot] = definition.after(one.origin, [own[row] for row in one.path])
                if one.tracked:
                    new[one.tracked] = definition.after(one.origin, [own[row] for row in one.kept_in_track])
                new |= {slot: definition.after(one.origin, own[:count]) for count, slot in one.snapshots}
            definition.live |= new
        self.compare()

    def agree(self, what: str, got: Rows, wanted: list[list[Output]]) -> None:
        """Hold outputs against the definition: exactly where its sums are exact, else as fp32 sums may come out."""
        for n, (row, due) in enumerate(zip(got, wanted, strict=True)):
            for channel, (found, one) in enumerate(zip(row, due, strict=True)):
                value = nearest(one.value, self.setup.x_dtype)
                most = 0.0 if self.setup.whole and not self.setup.silu else 2e-6 * one.size
                most += unit(value, self.setup.x_dtype) if most else 0.0
                assert abs(found - value) <= most, (
                    f"{what}: row {n}, channel {channel}: expected {value!r}, found {found!r}"
                )

    def compare(self) -> None:
        """The live rows of every slot."""
        found = self.rig.state(range(1, SLOTS + 1))
        for (layer, definition), slots in zip(self.definitions.items(), found, strict=True):
            for slot, rows in enumerate(slots, start=1):
                wanted = definition.history(slot)
                assert rows == wanted, f"live rows of layer {layer}, slot {slot}: expected {wanted}, found {rows}"
