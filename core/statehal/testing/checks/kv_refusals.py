"""What KV writers refuse, and that they have stored nothing when they do."""

from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.testing.check import check
from statehal.testing.kv import misfits
from statehal.testing.kv.arguments import fitting, several
from statehal.testing.kv.misfits import bad_layers, bad_rows
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, LAYERS, PADDING, PAGES, PLAIN, Setting, claimed
from statehal.testing.kv.spaces import WRONG, SpaceCase, make, pool_of, refuses, space_cases
from statehal.testing.target import Target


def _attention(target: Target) -> Any:
    return space_cases(claimed(target, PLAIN))


def _latent(target: Target) -> Any:
    return space_cases(claimed(target, PLAIN), latent=True)


@st.composite
def _either(draw: DrawFn, tags: tuple[str, ...]) -> SpaceCase:
    return draw(space_cases(tags, latent=draw(st.integers(0, 3)) == 0))


def _ones(target: Target, case: SpaceCase, *shape: int) -> Tensor:
    """Rows ``[tokens, *shape]``."""
    return target.on_device(torch.ones(case.count, *shape, dtype=getattr(torch, case.spec.dtype)))


@check("kv_refusals", needs=("kv.write", ANY_PLAIN), cases=_attention, features=(*WRONG, "a window"))
def check_write_takes_ids_of_its_own_space(target: Target, case: SpaceCase) -> None:
    """A write takes kernel ids of tokens of its own sub-pool; anything else raises before a byte is stored."""
    pool = pool_of(target, case)
    ids = make(target, case, pool)
    k, v, writer = _ones(target, case, 2, 4), _ones(target, case, 2, 4), target.binding().kv(pool["kv"])
    refuses(target, case, pool, ids, {"write": lambda: writer.write(1, ids, k, v)})


@check("kv_refusals", needs=("kv.rope_write", ANY_PLAIN), cases=_attention, features=(*WRONG, "a window"))
def check_rope_write_takes_ids_of_its_own_space(target: Target, case: SpaceCase) -> None:
    """A rope_write takes kernel ids of tokens of its own sub-pool; anything else raises before a byte is stored."""
    pool = pool_of(target, case)
    ids = make(target, case, pool)
    rows, table = _ones(target, case, 2, 4), target.on_device(torch.ones(4, 4))
    positions = target.on_device(torch.zeros(case.count, dtype=torch.int64))
    writer = target.binding().kv(pool["kv"])
    call = lambda: writer.rope_write(1, ids, rows, rows, rows, positions, table)  # noqa: E731
    refuses(target, case, pool, ids, {"rope_write": call})


@check("kv_refusals", needs=("kv.write_latent", ANY_PLAIN), cases=_latent, features=(*WRONG, "a window"))
def check_write_latent_takes_ids_of_its_own_space(target: Target, case: SpaceCase) -> None:
    """A write_latent takes kernel ids of tokens of its own sub-pool; anything else raises before a byte is stored."""
    pool = pool_of(target, case)
    ids = make(target, case, pool)
    kv_c, k_pe, writer = _ones(target, case, 8), _ones(target, case, 4), target.binding().kv(pool["kv"])
    refuses(target, case, pool, ids, {"write_latent": lambda: writer.write_latent(1, ids, kv_c, k_pe)})


@check(
    "kv_refusals", needs=("kv.move", ANY_PLAIN), cases=lambda target: _either(claimed(target, PLAIN)),
    features=(*WRONG, "a window"),
)  # fmt: skip
def check_move_takes_ids_of_its_own_space(target: Target, case: SpaceCase) -> None:
    """A move takes kernel ids of tokens of its own sub-pool, as dst and src; anything else raises before a store."""
    pool = pool_of(target, case)
    ids = make(target, case, pool)
    tokens = pool.alloc(case.count, "kv").token_ids()
    right = pool["kv"].kernel_ids(tokens)
    writer = target.binding().kv(pool["kv"])
    calls = {"move to": lambda: writer.move(ids, right), "move from": lambda: writer.move(right, ids)}
    refuses(target, case, pool, ids, calls)


@check(
    "kv_refusals", needs=("kv.write", ANY_PLAIN), cases=lambda target: several(claimed(target, PLAIN)),
    features=(*PAGES, *LAYERS, *PADDING, "v_head_dim differs", "a view of a bigger pool"),
)  # fmt: skip
def check_rows_that_do_not_fit_are_refused(target: Target, case: Setting) -> None:
    """A shape, dtype, stride or layer that does not fit is an ArgumentError that names it, before a byte is stored."""
    scene = Scene(target, case)
    right = fitting(scene, "kv.write", getattr(torch, case.spec.dtype))
    bad = [*bad_rows("k", right["k"]), *bad_rows("v", right["v"]), *bad_layers(scene)]
    misfits.refuses(scene, "kv.write", right, bad)
