"""Pools for tests, and what they hold, read at addresses computed from a layout's integers."""

from functools import cache

import torch

from statehal import Attention, Binding, ConvRecurrent, bind, plan
from statehal.pool import Pages, StatePool, SubPool
from statehal.pool.member import Hygiene
from statehal.spec import Spec

PAGE_SIZES = (1, 3, 4, 16)


@cache
def binding(check: bool = False) -> Binding:
    """The reference backend on the CPU."""
    return bind("cpu", "reference", check=check)


def full(**more: object) -> Attention:
    return Attention("full", (0, 1), kv_heads=1, head_dim=4, **{"dtype": "float32", **more})  # type: ignore[arg-type]


def swa(**more: object) -> Attention:
    return Attention("swa", (2, 3, 4), 1, 4, **{"dtype": "float32", "window": 8, **more})  # type: ignore[arg-type]


def slots(**more: object) -> ConvRecurrent:
    arguments = {"channels": 4, "width": 4, "dtype": "float32", "state": (2, 4), **more}
    return ConvRecurrent("slots", (5,), **arguments)  # type: ignore[arg-type]


def make(
    *specs: Spec,
    pages: int = 8,
    page_size: int = 4,
    hygiene: Hygiene = "zero",
    check: bool = False,
    waste: float = 0.1,
) -> StatePool:
    """A pool in which every sub-pool can have ``pages`` pages at once, and more if others have fewer."""
    divided = plan(specs, tokens=pages * page_size, requests=pages, page_size=page_size, waste_limit=waste)
    return binding(check).allocate(divided, hygiene=hygiene)


def physical(sub: SubPool, pages: Pages) -> list[int]:
    """Physical pages of a handle, found in its kernel ids."""
    field = sub.layout.fields[0]
    kind = sub.layout.kinds(field.name)[0]
    ratio = field.page_stride // field.token_strides[0] if kind == "row" else 1
    return [number // ratio for number in sub.kernel_ids(pages.page_ids()).tensors[0].tolist()]


def page_bytes(sub: SubPool, page: int) -> torch.Tensor:
    """All bytes of a physical page, padding included; aliases the pool."""
    size = sub.layout.fields[0].page_stride
    start = sub.plan.region.offset + page * size
    return sub.buffer[start : start + size]


def snapshot(pool: StatePool) -> dict[str, object]:
    """What an error must leave as it was."""
    return {
        name: (
            pool[name].used_pages,
            pool.available(name),
            pool[name].kernel_ids(pool[name].space("virtual", "pages").assume(torch.arange(64))).tensors[0].tolist(),
        )
        for name in pool
    }
