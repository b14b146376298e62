"""What ``write_latent`` refuses besides ids, with nothing stored."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.testing.check import check
from statehal.testing.kv.arguments import fitting, ones, several, turning
from statehal.testing.kv.misfits import Misfit, bad_layers, bad_rows, bad_turns, bad_weights, one, refuses
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, LAYERS, PADDING, PAGES, PLAIN, Setting, claimed
from statehal.testing.target import Target


@dataclass(frozen=True)
class ArgumentsCase:
    """Which optional arguments that fit are beside the one that does not."""

    setting: Setting
    norm: bool
    turned: bool

    @property
    def features(self) -> frozenset[str]:
        given = {"a norm": self.norm, "a rotation": self.turned}
        return self.setting.features | {f"{'with' if there else 'without'} {name}" for name, there in given.items()}


@st.composite
def _case(draw: DrawFn, tags: tuple[str, ...]) -> ArgumentsCase:
    return ArgumentsCase(draw(several(tags, latent=True)), draw(st.booleans()), draw(st.booleans()))


def _keys(content: Tensor, key: Tensor) -> list[Misfit]:
    """Keys that do not fit, and contents and keys that fit no better because together they fill a row."""
    shifted = {"kv_c": content[:, :-1].contiguous(), "k_pe": torch.cat([key, key[:, :1]], -1)}
    return [
        *bad_rows("k_pe", key),
        one("k_pe", "two heads", torch.stack([key, key], 1)),
        one("k_pe", "a head an element", key[:, :, None]),
        Misfit("an element of kv_c in k_pe", shifted, ("kv_c", "k_pe")),
    ]


@check(
    "kv_arguments", needs=("kv.write_latent", ANY_PLAIN), cases=lambda target: _case(claimed(target, PLAIN)),
    features=(*PAGES, *LAYERS, *PADDING, "with a norm", "without a norm", "with a rotation", "without a rotation"),
)  # fmt: skip
def check_latent_arguments_that_do_not_fit_are_refused(target: Target, case: ArgumentsCase) -> None:
    """An argument of write_latent that does not fit is an ArgumentError that names it, before a byte is stored."""
    scene, dtype = Scene(target, case.setting), getattr(torch, case.setting.spec.dtype)
    right = fitting(scene, "kv.write_latent", dtype)
    rank, width = right["kv_c"].shape[1], right["k_pe"].shape[1]
    turn = turning(scene, width)
    right |= {"norm": ones(scene, rank)} if case.norm else {}
    right |= turn if case.turned else {}
    another = torch.float16 if dtype == torch.float32 else torch.float32
    together = {name: right[name].to(another) for name in ("kv_c", "k_pe")}
    halves = {"positions": turn | {"cos_sin": None}, "cos_sin": turn | {"positions": None}}
    misfits = [
        *bad_rows("kv_c", right["kv_c"]),
        *_keys(right["kv_c"], right["k_pe"]),
        Misfit("kv_c and k_pe of another dtype", together, ("kv_c", "k_pe")),
        *bad_weights("norm", ones(scene, rank)),
        *bad_turns(turn, width),
        *(Misfit(f"{name} alone", half, ("positions", "cos_sin")) for name, half in halves.items()),
        *bad_layers(scene),
    ]
    refuses(scene, "kv.write_latent", right, misfits)
