"""Causal conv1d: prefill, decode, verify, commit, copies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from statehal.hookspecs import CausalConv1dRequest
from statehal.ids import KernelIds
from statehal.layout import ConvStateLayout, conv_window
from statehal.pool import SubPool
from statehal.spec import REPLAY, ConvRecurrent, ExtraField
from statehal_triton_ops.causal_conv1d import TritonCausalConv1d
from statehal_triton_ops.compile.scenario import Scenario, pool_of, tensor
from statehal_triton_ops.compile.tunings import conv_tunings

LAYER = 4
DRAFTS = (1, 4, 8)
REQUESTS, TOKENS = 64, 8192


@dataclass(frozen=True)
class Case:
    """What a convolution is specialised for."""

    width: int
    dtype: str
    silu: bool = True
    protocol: Literal["ring", "offset"] = "ring"
    drafts: int = 4
    channels: int = 8192
    recurrent: bool = True
    replay: bool = False
    counter: bool = False
    ids: str = "int64"

    @property
    def name(self) -> str:
        """For tables."""
        what = [f"w{self.width}", self.dtype, "silu" if self.silu else "linear", self.protocol, f"d{self.drafts}"]
        what += [f"{self.channels} channels"] * (self.channels != 8192) + ["replay"] * self.replay
        what += ["counter"] * self.counter
        return " ".join([*what, *(["no state"] * (not self.recurrent)), *([self.ids] * (self.ids != "int64"))])


def scenarios() -> Iterator[Scenario]:
    """All of them; tuning entries after the first with one dtype alone."""
    for case in _cases():
        yield Scenario(f"conv {case.name}", _run(case, slice(0, 1)), case in QUICK)
    for width in range(2, 9):
        case = Case(width, "bfloat16")
        yield Scenario(f"conv {case.name} further tunings", _run(case, slice(1, None)))


QUICK = (Case(4, "bfloat16"), Case(2, "float32", silu=False, protocol="offset", drafts=1))


def _cases() -> Iterator[Case]:
    yield from QUICK
    for width in range(2, 9):
        for dtype in ("bfloat16", "float16", "float32"):
            for silu in (False, True):
                if Case(width, dtype, silu) not in QUICK:
                    yield Case(width, dtype, silu)
    for width in (2, 4, 8):
        for drafts in DRAFTS:
            yield Case(width, "bfloat16", protocol="offset", drafts=drafts)
            if drafts != 4:
                yield Case(width, "bfloat16", drafts=drafts)
    yield Case(4, "bfloat16", channels=2056)
    yield Case(4, "bfloat16", channels=1536)
    yield Case(4, "bfloat16", replay=True)
    yield Case(4, "bfloat16", counter=True)
    yield Case(4, "bfloat16", recurrent=False)
    yield Case(4, "bfloat16", ids="int32")


def _run(case: Case, tunings: slice) -> Callable[[str], None]:
    def run(family: str) -> None:
        ring = ExtraField(REPLAY, (case.width - 1 + case.drafts - 1, 256), "bfloat16")
        extra = [ring] * case.replay + [ExtraField("count", (1,), "int32")] * case.counter
        spec = ConvRecurrent(
            "gdn",
            layers=(LAYER, LAYER + 1),
            channels=case.channels,
            width=case.width,
            dtype=case.dtype,
            verify_tokens=case.drafts,
            state=(32, 128, 128) if case.recurrent else None,
            extra=tuple(extra),
        )
        state = ConvStateLayout(protocol=case.protocol, align=16)
        sub = pool_of([spec], layouts=lambda one, size: conv_window(one, state))["gdn"]
        for tuning in conv_tunings(family)[tunings]:
            _calls(TritonCausalConv1d(CausalConv1dRequest(sub, "meta"), tuning), sub, case)

    return run


def _calls(conv: TritonCausalConv1d, sub: SubPool, case: Case) -> None:
    weight = tensor(case.channels, case.width, dtype=case.dtype)
    conv.prepare(LAYER, weight, tensor(case.channels, dtype=case.dtype), activation="silu" if case.silu else None)

    def slots(*shape: int) -> KernelIds:
        return sub.kernel_buffer(*shape, unit="pages", dtype=getattr(torch, case.ids))

    def numbers(*shape: int) -> torch.Tensor:
        return tensor(*shape, dtype=case.ids)

    x = tensor(TOKENS, case.channels, dtype=case.dtype)
    loc, has = numbers(REQUESTS + 1), tensor(REQUESTS, dtype="bool")
    conv.prefill(LAYER, x, loc, slots(REQUESTS))
    conv.prefill(
        LAYER, x, loc, slots(REQUESTS), has, initial_slots=slots(REQUESTS),
        snapshots=(numbers(32), numbers(32), slots(32)),
    )  # fmt: skip
    conv.decode(LAYER, tensor(REQUESTS, case.channels, dtype=case.dtype), slots(REQUESTS))
    drafted = tensor(REQUESTS * case.drafts, case.channels, dtype=case.dtype)
    conv.verify(LAYER, drafted, slots(REQUESTS))
    conv.verify(LAYER, drafted, slots(REQUESTS), query_start_loc=numbers(REQUESTS + 1))
    conv.verify(LAYER, drafted, slots(REQUESTS), parents=numbers(REQUESTS * case.drafts))
    states = slots(REQUESTS, case.drafts) if case.recurrent else None
    conv.commit(slots(REQUESTS), numbers(REQUESTS))
    conv.commit(slots(REQUESTS), numbers(REQUESTS), state_slots=states)
    conv.commit(
        slots(REQUESTS), numbers(REQUESTS), path=numbers(REQUESTS, case.drafts), state_slots=states,
        track_slots=slots(REQUESTS), track_accepted=numbers(REQUESTS),
    )  # fmt: skip
    conv.copy_slots(slots(8), slots(8))
    conv.zero_slots(slots(8))
    conv.read_state(slots(REQUESTS))
