"""What ``rope_write`` refuses besides ids, with nothing stored and no output written."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.testing.check import check
from statehal.testing.kv.arguments import fitting, ones, several
from statehal.testing.kv.misfits import Misfit, bad_layers, bad_rows, bad_turns, bad_weights, one, refuses
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, LAYERS, PADDING, PAGES, PLAIN, Setting, claimed
from statehal.testing.target import Target


@dataclass(frozen=True)
class ArgumentsCase:
    """Which optional arguments that fit are beside the one that does not."""

    setting: Setting
    norms: bool
    outs: bool
    sections: bool

    @property
    def features(self) -> frozenset[str]:
        given = {"norms": self.norms, "outputs": self.outs, "sections": self.sections}
        return self.setting.features | {f"{'with' if there else 'without'} {name}" for name, there in given.items()}


@st.composite
def _case(draw: DrawFn, tags: tuple[str, ...]) -> ArgumentsCase:
    return ArgumentsCase(draw(several(tags)), draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))


def _sections(rows: Tensor, half: int) -> list[Misfit]:
    """Sections that do not fit ``half`` frequencies and three rows of positions."""
    wrong = {
        "a frequency too many": (half, 1, 0),
        "a frequency too few": (half - 1, 0, 0),
        "two counts": (half - 1, 1),
        "four counts": (half - 1, 1, 0, 0),
        "a count below zero": (half + 1, -1, 0),
    }
    places = {"one row": rows[0], "two rows": rows[:2], "a token too few": rows[:, :-1]}
    places |= {"a row a token": rows.T} if rows.shape[1] != 3 else {}
    right: dict[str, Any] = {"positions": rows, "rope_sections": (half, 0, 0)}
    return [
        *(Misfit(f"rope_sections of {what}", right | {"rope_sections": sections}, ("rope_sections",))
          for what, sections in wrong.items()),
        *(Misfit(f"sections and positions of {what}", right | {"positions": part}, ("positions", "rope_sections"))
          for what, part in places.items()),
    ]  # fmt: skip


@check(
    "kv_arguments", needs=("kv.rope_write", ANY_PLAIN), cases=lambda target: _case(claimed(target, PLAIN)),
    features=(
        *PAGES, *LAYERS, *PADDING, "v_head_dim differs", "with norms", "without norms", "with outputs",
        "without outputs", "with sections", "without sections",
    ),
)  # fmt: skip
def check_rope_arguments_that_do_not_fit_are_refused(target: Target, case: ArgumentsCase) -> None:
    """An argument of rope_write that does not fit is an ArgumentError that names it, before anything is written."""
    scene, dtype = Scene(target, case.setting), getattr(torch, case.setting.spec.dtype)
    right = fitting(scene, "kv.rope_write", dtype)
    width = right["q"].shape[-1]
    rotation = {name: right[name] for name in ("positions", "cos_sin")} | {"rope_sections": None}
    rows = right["positions"].repeat(3, 1)
    if case.norms:
        right |= {"q_norm": ones(scene, width), "k_norm": ones(scene, width, dtype=torch.bfloat16)}
    outs = {"q_out": right["q"] * 7, "k_out": right["k"] * 7}
    if case.outs:
        right |= outs
    if case.sections:
        right |= {"positions": rows, "rope_sections": (1, 0, width // 2 - 1)}
    another = torch.float16 if dtype == torch.float32 else torch.float32
    together: dict[str, Any] = {
        name: right[name].to(another) for name in ("q", "k", "v", "q_out", "k_out") if name in right
    }
    misfits = [
        *bad_rows("q", right["q"], any_heads=True),
        *bad_rows("k", right["k"]),
        *bad_rows("v", right["v"]),
        Misfit("q, k and v of another dtype", together, ("q", "k", "v")),
        *bad_turns(rotation, width),
        *_sections(rows, width // 2),
        *(bad for name in ("q_norm", "k_norm") for bad in bad_weights(name, ones(scene, width))),
        *(bad for name, out in outs.items() for bad in bad_rows(name, out)),
        one("q_out", "the shape of k", right["k"] * 7),
        one("k_out", "the shape of q", right["q"] * 7),
        *bad_layers(scene),
    ]
    refuses(scene, "kv.rope_write", right, misfits)
