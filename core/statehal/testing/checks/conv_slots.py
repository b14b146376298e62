"""``CausalConv1d.copy_slots``, ``zero_slots`` and ``read_state``."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.testing.check import check
from statehal.testing.conv.cases import RunCase, runs
from statehal.testing.conv.requests import PADDING, SLOTS, Mix
from statehal.testing.conv.rig import lists
from statehal.testing.conv.run import Run
from statehal.testing.conv.setups import windows
from statehal.testing.target import Target

FEATURES = ("padding", "several layers", "recurrent state", "drafts", "a view of a bigger pool", "int32", "int64")


@dataclass(frozen=True)
class SlotsCase:
    """A run, and what is done to its slots after it.

    Attributes:
        sources, targets: slots that are copied, padding among them; targets are distinct.
    """

    run: RunCase
    sources: tuple[int, ...]
    targets: tuple[int, ...]

    @property
    def features(self) -> frozenset[str]:
        found = set(self.run.setup.features)
        found |= {"padding"} if any(slot <= 0 for slot in self.sources + self.targets) else set()
        found |= {"a padding source"} if any(s <= 0 < t for s, t in self._pairs) else set()
        found |= {"a padding target"} if any(t <= 0 < s for s, t in self._pairs) else set()
        found |= {"a source that is written"} if {s for s, t in self._pairs if s > 0} & set(self.targets) else set()
        found |= {"no slots"} if not self.sources else set()
        return frozenset(found)

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.sources, self.targets, strict=True))


@st.composite
def _cases(draw: DrawFn, tags: tuple[str, ...], mix: Mix) -> SlotsCase:
    run = draw(runs(tags, mix, 2))
    chance = random.Random(draw(st.integers(0, 2**32 - 1)))
    count = chance.choice([0, 1, 3, 4, 5, 6, 6])

    def some(distinct: bool) -> tuple[int, ...]:
        slots = chance.sample(range(1, SLOTS + 1), count) if distinct else chance.choices(range(1, SLOTS + 1), k=count)
        return tuple(slot if chance.random() < 0.8 else chance.choice(PADDING) for slot in slots)

    return SlotsCase(run, some(False), some(True))


def cases(target: Target) -> Any:
    """Slots that several steps have filled."""
    return _cases(windows(target), Mix(("verify", "verify", "prefill", "decode")))


@check(
    "conv_slots",
    needs=("conv.copy_slots",),
    cases=cases,
    features=(*FEATURES, "a padding source", "a padding target", "a source that is written", "no slots"),
)
def check_copies_are_whole_checkpoints(target: Target, case: SlotsCase) -> None:
    """A copy takes window, cursor and all other rows of all layers; all slots are read before any is written."""
    run, pairs = Run(target, case.run.setup), list(zip(case.sources, case.targets, strict=True))
    run.rounds(case.run.steps)
    rig, before = run.rig, run.rig.image()
    rig.conv.copy_slots(rig.pick(case.sources), rig.pick(case.targets))
    written = {to: source for source, to in pairs if to > 0}
    run.unchanged("copy_slots", before, [span for slot in written for span in rig.bytes.whole(rig.pages[slot])])
    after = rig.image()
    for to, source in written.items():
        wanted = rig.bytes.payload(before, rig.pages[max(source, 0)])  # page 0, the sink, is an empty slot
        found = rig.bytes.payload(after, rig.pages[to])
        at = next((n for n, (one, two) in enumerate(zip(wanted, found, strict=True)) if one != two), None)
        assert at is None, (
            f"slot {to}, a copy of {source}: byte {at} of its fields is {found[at or 0]:#04x}, not copied"
        )
    for definition in run.definitions.values():
        definition.live |= {to: definition.history(source) for to, source in written.items()}
    if run.host:
        state = dict(run.host.state)
        run.host.state |= {to: state.get(source, 0) for to, source in written.items()}
    run.decode_twice()


@check("conv_slots", needs=("conv.zero_slots",), cases=cases, features=(*FEATURES, "no slots"))
def check_zeroed_slots_are_empty(target: Target, case: SlotsCase) -> None:
    """A slot that is zeroed has zero bytes in window, cursor and every other row of all layers; others keep theirs."""
    run = Run(target, case.run.setup)
    run.rounds(case.run.steps)
    rig, before = run.rig, run.rig.image()
    rig.conv.zero_slots(rig.pick(case.targets))
    zeroed = [slot for slot in case.targets if slot > 0]
    run.unchanged("zero_slots", before, [span for slot in zeroed for span in rig.bytes.whole(rig.pages[slot])])
    after = rig.image()
    for slot in zeroed:
        left = sum(byte != 0 for byte in rig.bytes.payload(after, rig.pages[slot]))
        assert not left, f"slot {slot}: {left} bytes of its fields are not zero"
    for definition in run.definitions.values():
        definition.live |= dict.fromkeys(zeroed, definition.history(None))
    if run.host:
        run.host.state |= dict.fromkeys(zeroed, 0)
    run.decode_twice()


@check("conv_slots", needs=("conv.read_state",), cases=cases, features=(*FEATURES, "no slots"))
def check_live_rows_are_read_oldest_first(target: Target, case: SlotsCase) -> None:
    """read_state returns a new tensor of the live rows, layers in the spec's order, oldest first, zeros for padding."""
    run = Run(target, case.run.setup)
    run.rounds(case.run.steps)
    rig, before, spec = run.rig, run.rig.image(), run.rig.spec
    state = rig.conv.read_state(rig.pick(case.sources))
    due = (len(spec.layers), len(case.sources), spec.width - 1, spec.channels)
    assert (tuple(state.shape), state.dtype) == (due, getattr(torch, spec.dtype)), (
        f"expected {spec.dtype} {due}, found {state.dtype} {tuple(state.shape)}"
    )
    for n, layer in enumerate(spec.layers):
        for place, slot in enumerate(case.sources):
            wanted, found = run.definitions[layer].history(max(slot, 0)), lists(state[n, place])
            assert found == wanted, f"layer {layer} of {spec.layers}, slot {slot}: expected {wanted}, found {found}"
    state.fill_(9)
    run.unchanged("read_state, or a write to what it returned,", before, [])
