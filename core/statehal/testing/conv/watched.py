"""Runs whose every call is held against the bytes that it may change, and windows against their positions."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor

from statehal.testing.conv.requests import SLOTS, Request, Step
from statehal.testing.conv.rig import lists
from statehal.testing.conv.run import Run
from statehal.testing.oracles.conv import Rows
from statehal.testing.oracles.conv_bytes import Span

T = TypeVar("T")


class WatchedRun(Run):
    """A run in which no call changes another byte, and rows lie where the layout's protocol says."""

    def called(self, what: str, spans: Callable[[], list[Span]], call: Callable[[], T]) -> T:
        """Call the backend between two images of the pool."""
        self.rig.pool.flush()
        before = self.rig.image()
        result = call()
        self.unchanged(what, before, spans())
        return result

    def operate(self, step: Step, layer: int, kind: str, group: list[Request], x: Tensor) -> Tensor:
        """Look for the rows of the step at their positions."""
        rig, where = self.rig, self.rig.bytes.places
        definition, taps, values = self.definitions[layer], self.setup.spec.width - 1, lists(x)
        result = super().operate(step, layer, kind, group, x)
        image = rig.image()
        for one in group:
            if one.slot <= 0:
                continue
            own = values[one.rows.start : one.rows.stop]
            if kind == "prefill":
                wanted = definition.after(one.origin, own)
            else:
                wanted = (definition.history(one.slot) + own[: self.drafts])[1:]
            page = rig.pages[one.slot]
            cursor = rig.bytes.cursor(image, page)
            found = rig.bytes.window(image, page, layer, [where.of(cursor, n + 1) for n in range(len(wanted))])
            assert found == wanted, (
                f"{kind} of layer {layer}, slot {one.slot}, cursor {cursor} of a {where.protocol} window with history "
                f"of {taps}: expected rows {wanted} at positions 1 and up, found {found}"
            )
        return result

    def commit(self, step: Step) -> None:
        """Follow the cursors of the slots that a step names."""
        rig, image = self.rig, self.rig.image()
        due = {}
        for one in step.requests:
            if one.slot > 0:
                cursor = rig.bytes.cursor(image, rig.pages[one.slot])
                due[one.slot] = rig.bytes.places.after(cursor, one.accepted)
                if one.tracked:
                    due[one.tracked] = rig.bytes.places.after(cursor, one.track[1])
        super().commit(step)
        image = rig.image()
        for slot, wanted in due.items():
            found = rig.bytes.cursor(image, rig.pages[slot])
            assert found == wanted, (
                f"cursor of slot {slot} after a commit, {rig.bytes.places.protocol}: expected {wanted}, found {found}"
            )

    def judge(self, step: Step, xs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> None:
        """The live rows lie where the cursor says."""
        super().judge(step, xs, outputs)
        image = self.rig.image()
        for layer, definition in self.definitions.items():
            for slot in range(1, SLOTS + 1):
                wanted: Rows = definition.history(slot)
                found = self.rig.bytes.live(image, self.rig.pages[slot], layer)
                assert found == wanted, f"layer {layer}, slot {slot}: expected live rows {wanted}, found {found}"
