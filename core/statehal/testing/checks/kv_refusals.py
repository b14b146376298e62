"""What KV writers refuse, and that they have stored nothing when they do."""

import re
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.spec import Attention
from statehal.testing.check import check
from statehal.testing.kv.setting import ANY_PLAIN, PLAIN, claimed
from statehal.testing.kv.spaces import WRONG, SpaceCase, make, pool_of, refuses, space_cases
from statehal.testing.oracles.bytes import first_difference
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


@dataclass(frozen=True)
class MisfitCase:
    """Rows of which one argument does not fit."""

    dtype: str
    argument: str
    fault: str

    @property
    def features(self) -> frozenset[str]:
        return frozenset({self.fault, self.argument})


FAULTS = ("a row too few", "a head too many", "an element too few", "another dtype", "a last dimension with gaps",
          "an axis too few")  # fmt: skip


@st.composite
def _misfits(draw: DrawFn, tags: tuple[str, ...]) -> MisfitCase:
    dtype = draw(st.sampled_from(tags)).removeprefix("store:")
    return MisfitCase(dtype, draw(st.sampled_from(["k", "v", "layer"])), draw(st.sampled_from(FAULTS)))


def _misfit(rows: Tensor, fault: str) -> Tensor:
    """The rows with that fault."""
    if fault == "another dtype":
        return rows.to(torch.float32 if rows.dtype != torch.float32 else torch.float16)
    if fault == "a last dimension with gaps":
        return rows.repeat_interleave(2, -1)[..., ::2]
    return {
        "a row too few": rows[:-1],
        "a head too many": torch.cat([rows, rows[:, :1]], 1),
        "an element too few": rows[..., :-1].clone(),
        "an axis too few": rows.flatten(1),
    }[fault]


@check(
    "kv_refusals", needs=("kv.write", ANY_PLAIN), cases=lambda target: _misfits(claimed(target, PLAIN)),
    features=(*FAULTS, "k", "v", "layer"),
)  # fmt: skip
def check_rows_that_do_not_fit_are_refused(target: Target, case: MisfitCase) -> None:
    """A shape, dtype, stride or layer that does not fit is an ArgumentError that names it, before a byte is stored."""
    spec = Attention("kv", (1, 3), 2, 4, case.dtype)
    pool = target.pool([spec], tokens=64, page_size=4)
    ids = pool["kv"].kernel_ids(pool.alloc(3).token_ids())
    given = {name: torch.ones(3, 2, 4, dtype=getattr(torch, case.dtype)) for name in ("k", "v")}
    if case.argument in given:
        given[case.argument] = _misfit(given[case.argument], case.fault)
    k, v = target.on_device(given["k"]), target.on_device(given["v"])
    what = case.argument if case.argument == "layer" else f"{case.argument} with {case.fault}"
    before = target.image(pool)
    try:
        target.binding().kv(pool["kv"]).write(7 if case.argument == "layer" else 3, ids, k, v)
    except ArgumentError as error:
        assert re.search(rf"\b{case.argument}\b", str(error)), f"write refused {what} and does not name it: {error}"
    except Exception as error:
        raise AssertionError(f"write refused {what} with {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"write took {what}")
    different = first_difference(pool, before, target.image(pool))
    assert not different, f"write refused {what} after it had stored: {different}"
