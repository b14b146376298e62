"""Scales, and rows to quantise, that every KV write refuses, with nothing stored."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs.capabilities import SCALES
from statehal.spec import Latent
from statehal.testing.check import check
from statehal.testing.kv.arguments import ANY_WRITE, METHODS, fitting
from statehal.testing.kv.misfits import Misfit, one, refuses
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import (
    ANY_EIGHT,
    ANY_PLAIN,
    EIGHT,
    PADDING,
    PAGES,
    PLAIN,
    WIDE,
    Setting,
    attention,
    claimed,
    settings,
)
from statehal.testing.target import Target


@dataclass(frozen=True)
class ScaleCase:
    """A write, and the dtype of its rows."""

    setting: Setting
    method: str
    given: str

    @property
    def scales(self) -> dict[str, str]:
        """Its scale arguments, and the rows of each."""
        return {"scale": "kv_c"} if self.method == METHODS[2] else {"k_scale": "k", "v_scale": "v"}

    @property
    def kept(self) -> bool:
        """Whether the sub-pool keeps scales."""
        return getattr(self.setting.spec, "scales", None) is not None

    @property
    def features(self) -> frozenset[str]:
        return self.setting.features | {self.method, f"{self.given} rows"} | ({"scales kept"} if self.kept else set())


@st.composite
def _case(draw: DrawFn, target: Target, tags: tuple[str, ...]) -> ScaleCase:
    method = draw(st.sampled_from([name for name in METHODS if name in target.offers]))
    dtype = draw(st.sampled_from(tags))
    spec = Latent("kv", (1, 3), 8, 4, dtype.removeprefix("store:")) if method == METHODS[2] else None
    kept = dtype in EIGHT and SCALES in target.offers and draw(st.booleans())
    setting = draw(settings(spec or draw(attention((dtype,), scales=kept)), (1, 2, 5)))
    given = draw(st.sampled_from(WIDE)) if dtype in EIGHT else setting.spec.dtype
    return ScaleCase(setting, method, given)


OFFERED = tuple(f"{name} if {name}" for name in METHODS)


@check(
    "kv_arguments", needs=(ANY_WRITE, ANY_PLAIN), cases=lambda target: _case(target, claimed(target, PLAIN)),
    features=(*OFFERED, *PAGES, *PADDING),
)  # fmt: skip
def check_plain_storage_takes_no_scale(target: Target, case: ScaleCase) -> None:
    """A scale for storage that is not quantised is an ArgumentError that names it, and is never ignored."""
    scene = Scene(target, case.setting)
    right = fitting(scene, case.method, getattr(torch, case.given))
    tensor = target.on_device(torch.tensor([0.5]))
    misfits = [one(name, what, by) for name in case.scales for what, by in (("0.5", 0.5), ("a tensor", tensor))]
    refuses(scene, case.method, right, misfits)


@check(
    "kv_arguments", needs=(ANY_WRITE, ANY_EIGHT), cases=lambda target: _case(target, claimed(target, EIGHT)),
    features=(*OFFERED, *PAGES, *PADDING, *(f"{name} rows" for name in WIDE), f"scales kept if {SCALES}"),
)  # fmt: skip
def check_what_cannot_be_quantised_is_refused(target: Target, case: ScaleCase) -> None:
    """What is no scale, and rows that fp8 and int8 storage does not take, are ArgumentErrors that name them."""
    scene = Scene(target, case.setting)
    right = fitting(scene, case.method, getattr(torch, case.given))
    device, stored = scene.pool.buffer.device, getattr(torch, case.setting.spec.dtype)
    bad: dict[str, Any] = {
        "0.0": 0.0,
        "-0.5": -0.5,
        "nan": float("nan"),
        "inf": float("inf"),
        "two elements": torch.ones(2, device=device),
        "no element": torch.ones(0, device=device),
        "two axes": torch.ones(2, 3, device=device),
        "integers": torch.ones(1, dtype=torch.int64, device=device),
        "another device": torch.ones(1, device="meta"),
    }
    misfits = [one(name, what, by) for name in case.scales for what, by in bad.items()]
    for name, rows in case.scales.items():
        together = tuple(key for key in ("q", "k", "v", "kv_c", "k_pe") if key in right)  # are of one dtype
        whole = together if case.method != METHODS[0] else (rows,)
        misfits += [
            Misfit(f"{dtype} rows", {key: right[key].to(dtype) for key in whole}, whole)
            for dtype in (torch.float64, torch.int16, torch.uint8)
        ]
        if case.method != METHODS[1]:
            narrow = {key: right[key].to(stored) for key in whole}
            misfits.append(Misfit(f"{stored} rows under a scale", {**narrow, name: 0.5}, (*whole, name)))
            misfits += [Misfit(f"{stored} rows where scales are kept", narrow, (*whole, name))] if case.kept else []
    refuses(scene, case.method, right, misfits)
