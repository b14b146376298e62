"""KV writes and autograd."""

import gc
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.spec import Latent
from statehal.testing.check import check
from statehal.testing.kv.arguments import ANY_WRITE, METHODS, fitting, ones
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, PADDING, PAGES, PLAIN, Setting, attention, claimed, settings
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.target import Target

MODES: dict[str, Any] = {
    "grad mode": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}

ROWS = ("q", "k", "v", "kv_c", "k_pe")


@dataclass(frozen=True)
class GradCase:
    """A write of rows that require gradients.

    Attributes:
        mode: under which it is called.
        leaves: they are parameters of a model, and not computed from some.
    """

    setting: Setting
    method: str
    mode: str
    leaves: bool

    @property
    def features(self) -> frozenset[str]:
        return self.setting.features | {self.method, self.mode, "leaves" if self.leaves else "computed rows"}


@st.composite
def _case(draw: DrawFn, target: Target) -> GradCase:
    method = draw(st.sampled_from([name for name in METHODS if name in target.offers]))
    tags = claimed(target, PLAIN)
    latent = Latent("kv", (1, 3), 8, 4, draw(st.sampled_from(tags)).removeprefix("store:"))
    setting = draw(settings(latent if method == METHODS[2] else draw(attention(tags)), (1, 2, 5)))
    return GradCase(setting, method, draw(st.sampled_from(sorted(MODES))), draw(st.booleans()))


@check(
    "kv_write", needs=(ANY_WRITE, ANY_PLAIN), cases=_case,
    features=(*(f"{name} if {name}" for name in METHODS), *MODES, "leaves", "computed rows", *PAGES, *PADDING),
)  # fmt: skip
def check_rows_that_require_gradients_leave_no_graph(target: Target, case: GradCase) -> None:
    """Rows that require gradients are stored like any others; no graph of them is kept, and a result has none."""
    images = []
    for required in (False, True):
        scene = Scene(target, case.setting)
        plain = fitting(scene, case.method, getattr(torch, case.setting.spec.dtype))
        plain |= _norms(scene, plain)
        leaves = {name: one.clone().requires_grad_() for name, one in plain.items() if required and _floating(one)}
        alive = {name: ref(leaf) for name, leaf in leaves.items() if name in ROWS}
        given = {**plain, **{name: leaf if case.leaves else leaf * 1 for name, leaf in leaves.items()}}
        call = getattr(scene.writer, case.method.removeprefix("kv."))
        with MODES[case.mode]():
            result = call(**given)
        assert result is None or not result.requires_grad, f"the result of {case.method} requires gradients"
        images.append(scene.image())
        del given, result
        leaves.clear()
        call(**plain)  # whoever holds on to the last call's tensors lets go of the others
        if any(leaf() is not None for leaf in alive.values()):
            gc.collect()
        kept = [name for name, leaf in alive.items() if leaf() is not None]
        assert not kept, f"after {case.method} in {case.mode}, a graph of {', '.join(kept)} is kept"
    different = first_difference(scene.pool, *images)
    assert not different, f"after {case.method} of rows that require gradients, in {case.mode}: {different}"


def _norms(scene: Scene, given: dict[str, Any]) -> dict[str, Tensor]:
    """Weights of norms, which are parameters of a model as a rule."""
    if "q" in given:
        width = given["q"].shape[-1]
        return {"q_norm": ones(scene, width), "k_norm": ones(scene, width)}
    return {"norm": ones(scene, given["kv_c"].shape[1])} if "kv_c" in given else {}


def _floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
