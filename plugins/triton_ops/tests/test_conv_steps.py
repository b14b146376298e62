"""Random steps of everything, in a pool of the kernels and in one of the reference: all bytes must agree."""

import random
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor

import statehal
from statehal.hookspecs import CausalConv1d, CausalConv1dRequest
from statehal.ids import KernelIds
from statehal.layout import ConvStateLayout, conv_window
from statehal.pool import StatePool
from statehal.spec import ConvRecurrent, ExtraField
from statehal.testing.conv.requests import KINDS, SLOTS, Mix, Request, Step, draw_step
from statehal_triton_ops.causal_conv1d import TritonCausalConv1d
from statehal_triton_ops.conv import ConvTuning

pytestmark = pytest.mark.interpreted

WINDOWS = {
    "ring": ConvStateLayout(),
    "ring, padded and aligned": ConvStateLayout(channel_multiple=16, align=64),
    "offset, row form, padded": ConvStateLayout(protocol="offset", forms=("row",), channel_multiple=4),
}
TUNINGS = ConvTuning(), ConvTuning(lanes=2, warps=1, tokens=5, rows=2, words=16, tiles=1)
MIX = Mix(("verify", "verify", "prefill", "prefill", "decode"), trees=True, tracking=True, snapshots=True)


class Side:
    """A pool, and the conv operations of one of the two."""

    def __init__(self, spec: ConvRecurrent, window: ConvStateLayout, slots: int, tuning: ConvTuning | None) -> None:
        plan = statehal.plan(
            [spec], tokens=16, requests=slots, page_size=1, layouts=lambda spec, page_size: conv_window(spec, window),
            waste_limit=0.9,
        )  # fmt: skip
        hal = statehal.bind("cpu", "reference")
        self.pool = StatePool(plan, "cpu", hal.memory)
        self.sub = self.pool["conv"]
        self.ids = self.sub.kernel_ids(self.pool.alloc(slots, "conv").page_ids())
        self.conv: CausalConv1d = hal.conv(self.sub)
        if tuning is not None:
            self.conv = TritonCausalConv1d(CausalConv1dRequest(self.sub, "cpu"), tuning)

    def pick(self, slots: list[int], index: torch.dtype) -> KernelIds:
        """Kernel ids of slots numbered from 1; numbers below are padding."""
        numbers = torch.tensor(slots, dtype=torch.int64)
        tensors = [one[(numbers - 1).clamp(min=0)].where(numbers > 0, numbers).to(index) for one in self.ids.tensors]
        ids: KernelIds = self.sub.space("kernel", "pages").assume(*tensors)
        return ids


class Both:
    """Both sides; every call goes to each, and everything that they hold and return is compared."""

    def __init__(self, seed: int, name: str) -> None:
        self.chance = chance = random.Random(seed)
        width, self.drafts = 2 + seed % 7, chance.choice([1, 2, 3, 4, 8])
        dtype = chance.choice(["float32", "bfloat16", "float16"])
        self.dtype = getattr(torch, chance.choice(["float32", "bfloat16", "float16"]) if dtype == "float32" else dtype)
        self.index = chance.choice([torch.int32, torch.int64])
        state = chance.choice([None, (2, 3)])
        extra: list[ExtraField] = []
        if "ring" in name and chance.random() < 0.5:
            extra.append(ExtraField("replay", (width - 1 + self.drafts - 1, 3), "float16"))
        self.spec = ConvRecurrent(
            "conv", chance.choice([(0,), (5, 2)]), chance.choice([1, 3, 8, 17]), width, dtype,
            verify_tokens=self.drafts, state=state, state_dtype=chance.choice(["float32", "bfloat16"]),
            extra=tuple(extra),
        )  # fmt: skip
        slots = SLOTS + 4 * self.drafts
        self.sides = [Side(self.spec, WINDOWS[name], slots, one) for one in (None, chance.choice(TUNINGS))]
        self.numbers = torch.Generator().manual_seed(seed)
        for layer in self.spec.layers:
            weight = self.whole(self.spec.channels, width).double()
            bias = self.whole(self.spec.channels) if chance.random() < 0.5 else None
            for side in self.sides:
                side.conv.prepare(layer, weight, bias)

    def whole(self, *shape: int) -> Tensor:
        """Small whole numbers, whose sums of products are exact in any order."""
        return torch.randint(-4, 5, shape, generator=self.numbers).to(self.dtype)

    def call(self, what: str, method: str, arguments: Any) -> list[Any]:
        """Call a method of both with what ``arguments`` makes for a side; results and bytes must be equal."""
        results = []
        for side in self.sides:
            args, more = arguments(side)
            results.append(getattr(side.conv, method)(*args, **more))
        wanted, found = results
        assert wanted is None or torch.equal(wanted, found), f"{what}: expected {wanted}, found {found}"
        one, two = (side.pool.buffer for side in self.sides)
        assert torch.equal(one, two), f"{what}: bytes {(one != two).nonzero().flatten().tolist()[:20]} differ"
        return results

    def ints(self, values: list[int]) -> Tensor:
        """An index tensor, at times a column of something wider."""
        made = torch.tensor(values, dtype=self.index)
        return torch.stack([made, made + 99], 1)[:, 0] if self.chance.random() < 0.1 else made

    def operate(self, step: Step, layer: int, kind: str, group: list[Request]) -> None:
        """One operation; rows of no request stand around those of requests."""
        loose = kind == "prefill" or (kind == "verify" and step.ragged)
        before, beyond = (step.before, step.beyond) if loose else (0, 0)
        ends = [before + end for end in accumulate((len(one.parents) for one in group), initial=0)]
        tokens = ends[-1] + beyond
        rows = self.whole(tokens, 3 * self.spec.channels)
        parents = [0] * before + [above for one in group for above in one.parents] + [0] * beyond
        slots = [one.slot for one in group]
        more: dict[str, Any] = {}
        if kind == "verify":
            more["query_start_loc"] = self.ints(ends) if step.ragged else None
            more["parents"] = self.ints(parents) if step.trees else None
        sources = [one.slot if one.source is None else one.source for one in group]
        has = torch.tensor([one.source is not None for one in group], dtype=torch.bool)
        forks = self.chance.random() < 0.5 or sources != slots
        saved = [(n, end, slot) for n, one in enumerate(group) for end, slot in one.snapshots]
        loc = self.ints(ends)

        def arguments(side: Side) -> tuple[tuple[Any, ...], dict[str, Any]]:
            x = rows.clone()[:, self.spec.channels : 2 * self.spec.channels]
            x = x if step.strided else x.contiguous()
            mine = more | {"out": {"new": None, "x": x, "other": torch.full_like(x, 5)}[step.out]}
            if kind != "prefill":
                return (layer, x, side.pick(slots, self.index)), mine
            mine["initial_slots"] = side.pick(sources, self.index) if forks else None
            if saved:
                sequence, end, target = (list(part) for part in zip(*saved, strict=True))
                points = torch.tensor(sequence, dtype=self.index), torch.tensor(end, dtype=self.index)
                mine["snapshots"] = (*points, side.pick(target, self.index))
            return (layer, x, loc, side.pick(slots, self.index), has), mine

        self.call(f"{kind} of layer {layer}, slots {slots}, ends {ends}, {step.out}", kind, arguments)

    def commit(self, step: Step) -> None:
        """End a step whose recurrent rows lie in scratch slots."""
        group = self.chance.sample(step.requests, len(step.requests))
        slots, counts = [one.slot for one in group], [self.chance.choice([one.accepted, 0, 9]) for one in group]
        paths = [[*(one.path if one.kind == "verify" else [0]), *[-1] * self.drafts][: self.drafts] for one in group]
        if step.trees:
            counts = [one.accepted for one in group]
        states = [[*one.scratch, *[self.chance.choice([-1, 0])] * self.drafts][: self.drafts] for one in group]
        tracks = any(one.track[0] for one in group)
        fetched = self.chance.random() < 0.8 or tracks
        path, accepted = self.ints([token for path in paths for token in path]).view(-1, self.drafts), self.ints(counts)
        kept = self.ints([one.track[1] for one in group])

        def arguments(side: Side) -> tuple[tuple[Any, ...], dict[str, Any]]:
            more: dict[str, Any] = {"path": path if step.trees else None}
            if fetched:
                more["state_slots"] = side.pick([slot for some in states for slot in some], self.index).reshape(
                    -1, self.drafts
                )
            if tracks:
                more["track_slots"] = side.pick([one.track[0] for one in group], self.index)
                more["track_accepted"] = kept
            return (side.pick(slots, self.index), accepted), more

        self.call(f"commit of slots {slots}, accepted {counts}, paths {paths}, states {states}", "commit", arguments)

    def recur(self) -> None:
        """Other rows in every recurrent field and replay ring, the same on both sides."""
        for field in self.spec.fields():
            for layer in self.spec.layers:
                self.put(field.name, layer)
        for layer in self.spec.layers if self.spec.state else ():
            self.put("state", layer)

    def put(self, field: str, layer: int) -> None:
        """Other rows in one field."""
        views = [side.sub.view(field, layer, "page")[1:] for side in self.sides]
        rows = torch.randint(-9, 10, views[0].shape, generator=self.numbers).to(views[0].dtype)
        for view in views:
            view.copy_(rows)

    def round(self) -> None:
        """A step, its commit, and reads and copies of slots."""
        step = draw_step(self.chance, self.spec.width, self.drafts, MIX)
        for layer in self.spec.layers:
            for kind in KINDS:
                if step.of(kind) or step.idle_calls:
                    self.operate(step, layer, kind, step.of(kind))
        self.recur()
        self.commit(step)
        every = [*range(1, SLOTS + 1), 0, -1]
        self.call("read_state", "read_state", lambda side: ((side.pick(every, self.index),), {}))
        source, target = self.chance.choices(every, k=3), self.chance.sample(every, 3)
        pairs = source, target
        self.call("copy_slots", "copy_slots", lambda side: ([side.pick(one, self.index) for one in pairs], {}))
        self.call("zero_slots", "zero_slots", lambda side: ((side.pick(target[:1], self.index),), {}))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("seed", range(7))
def test_both_hold_the_same_bytes(seed: int, name: str) -> None:
    """Every width, and other dtypes, drafts, channels and fields each time."""
    both = Both(seed + 100 * list(WINDOWS).index(name), name)
    for _ in range(2):
        both.round()
