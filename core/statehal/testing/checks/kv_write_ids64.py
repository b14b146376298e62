"""That a writer which claims 64-bit ids reads all of their bits."""

from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs import IDS64
from statehal.testing.check import check
from statehal.testing.kv.inputs import rows
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, PAGES, PLAIN, Setting, attention, claimed, settings
from statehal.testing.target import Target

PAST = (2**31, 2**32, 2**40)
"""What is added to ids: to 32 bits some of it is nothing."""


@st.composite
def _settings(draw: DrawFn, tags: tuple[str, ...]) -> Setting:
    return draw(settings(draw(attention(tags)), (2, 7)))


def _cases(target: Target) -> Any:
    return _settings(claimed(target, PLAIN))


@check("kv_write", needs=("kv.write", ANY_PLAIN, IDS64), cases=_cases, features=PAGES)
def check_ids_past_32_bits_are_past_the_view(target: Target, case: Setting) -> None:
    """With ``ids64`` all bits of an id count: one that only its lower 32 bits place in the view stores nothing."""
    scene = Scene(target, case)
    wanted = scene.image()
    _, k, v = (target.on_device(one) for one in rows(case.spec, len(case.tokens), case.seed, False))  # type: ignore[arg-type]
    for more in PAST:
        tensors = [torch.where(one > 0, one.long() + more, one.long()) for one in scene.ids.tensors]
        scene.writer.write(case.layer, scene.sub.space("kernel").assume(*tensors), k, v)
        scene.compare(wanted, f"after a write at ids that are {more} past those of tokens {case.tokens}")
