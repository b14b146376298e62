"""Rows of the memory operations."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from gpu_parts.figures import Operation
from gpu_parts.kv_rows import token_ids
from gpu_parts.machine import Place, fill
from statehal import Attention, SubPool, VirtualIds


def rows(place: Place) -> Iterator[Callable[[], Operation]]:
    """Makers of the operations, so that each takes its memory only while it is measured."""
    yield partial(translate, place, "tokens")
    yield partial(translate, place, "pages")
    yield partial(gather_or_scatter, place, "gather")
    yield partial(gather_or_scatter, place, "scatter")
    yield partial(copy_or_zero, place, "copy_pages")
    yield partial(copy_or_zero, place, "zero_pages")


def translate(place: Place, unit: str) -> Operation:
    """``kernel_ids`` into buffers: of tokens, one axis; or of pages, a block table."""
    sizes = place.sizes
    shape = (sizes.ids,) if unit == "tokens" else sizes.table
    count = torch.Size(shape).numel()
    pages = -(-sizes.ids // sizes.page_size)
    sub = _subpool(place, pages)
    held = sub.alloc(pages * sizes.page_size).page_ids().tensor
    entries = pages if unit == "tokens" else count
    nbytes = 8 * (count * (1 + len(sub.forms)) + entries)
    sets = place.sets(nbytes)
    virtual = []
    for index in range(sets):
        order = held[place.shuffled(pages).roll(index)]
        if unit == "tokens":
            ids = (order[:, None] * sizes.page_size + torch.arange(sizes.page_size, device=order.device)).flatten()
        else:
            ids = order.repeat(-(-count // pages))
        virtual.append(ids[:count].reshape(shape).contiguous())
    spaces = [sub.space("virtual", unit).assume(ids) for ids in virtual]
    buffers = [sub.kernel_buffer(*shape, unit=unit) for _ in range(sets)]
    calls: list[Callable[[], object]] = [
        partial(_translate, sub, ids, buffer) for ids, buffer in zip(spaces, buffers, strict=True)
    ]
    return Operation(
        f"translate {unit}",
        f"{' x '.join(map(str, shape))} int64 ids, {len(sub.forms)} forms",
        nbytes,
        "ids and table entries read, ids written",
        calls,
        tuple(tensor for buffer in buffers for tensor in buffer.tensors),
        lambda: [ids.copy_(ids.flip(-1)) for ids in virtual],
    )


def gather_or_scatter(place: Place, method: str) -> Operation:
    """Rows of one layer's keys, through the row view."""
    sizes = place.sizes
    nbytes = 2 * sizes.tokens * sizes.heads * sizes.dim * 2
    sets = place.sets(nbytes)
    spec = Attention("kv", tuple(range(sets)), sizes.heads, sizes.dim, "bfloat16")
    sub, kernel = token_ids(place, spec, sizes.tokens)
    ids = kernel.of(sub.layout.form("k", "row"))
    views = [sub.view("k", layer, "row") for layer in range(sets)]
    dense = place.values(sets, sizes.tokens, sizes.heads, sizes.dim)
    memory = place.hal.memory
    for view, values in zip(views, dense, strict=True):
        memory.scatter(view, ids, values, first=sizes.page_size)
    calls: list[Callable[[], object]] = [
        partial(memory.gather, view, ids, out=values)
        if method == "gather"
        else partial(memory.scatter, view, ids, values, first=sizes.page_size)
        for view, values in zip(views, dense, strict=True)
    ]
    return Operation(
        f"{method} bfloat16",
        f"{sizes.tokens} rows x {sizes.heads} x {sizes.dim}",
        nbytes,
        "rows read and written",
        calls,
        (sub.buffer, dense),
        lambda: ids.copy_(ids.flip(0)),
    )


def copy_or_zero(place: Place, method: str) -> Operation:
    """Whole pages of four layers."""
    sizes = place.sizes
    sub = _subpool(place, 4)
    once = sizes.pages * sub.layout.page_bytes
    nbytes = 2 * once if method == "copy_pages" else once
    sets = place.sets(nbytes)
    sub = _subpool(place, 2 * sets * sizes.pages)
    fill(sub)
    held = sub.alloc(2 * sets * sizes.pages * sizes.page_size)
    physical = sub.physical_ids(held.page_ids()).tensor
    pages = physical[place.shuffled(physical.numel())].view(sets, 2, sizes.pages)
    memory: Any = place.hal.memory
    calls: list[Callable[[], object]] = [
        partial(memory.copy_pages, sub.page_views, src, dst)
        if method == "copy_pages"
        else partial(memory.zero_pages, sub.page_views, dst)
        for src, dst in pages
    ]
    return Operation(
        method,
        f"{sizes.pages} pages of {sub.layout.page_bytes} bytes",
        nbytes,
        "pages read and written" if method == "copy_pages" else "pages written",
        calls,
        (sub.buffer,),
        lambda: (pages.copy_(pages.flip(1)), fill(sub)),
    )


def _subpool(place: Place, pages: int) -> SubPool:
    sizes = place.sizes
    spec = Attention("kv", (0, 1, 2, 3), sizes.heads, sizes.dim, "bfloat16")
    tokens = (pages + 1) * sizes.page_size
    plan = place.hal.plan([spec], tokens=tokens, page_size=sizes.page_size)
    return place.hal.allocate(plan, hygiene="none")["kv"]


def _translate(sub: SubPool, virtual: VirtualIds, out: Any) -> object:
    return sub.kernel_ids(virtual, out)
