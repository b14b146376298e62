"""Where attention rows lie, by plain integer arithmetic on bytes: nothing here asks a layout for an address."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import statehal
from statehal.ids import KernelIds
from statehal.layout import FieldLayout, PoolLayout, layer_major, nz, page_major, token_major
from statehal.pool import StatePool, SubPool
from statehal.spec import Attention, Spec

LAYERS = (7, 2, 4)
"""Model layer ids: neither sorted nor dense, so a row index is no layer id."""


@dataclass(frozen=True)
class Facts:
    """The integers that an address follows from; ``page_stride``, ``num_pages`` and ``base`` are the plan's."""

    page_size: int
    heads: int
    widths: tuple[int, int]
    size: int
    page_stride: int
    num_pages: int
    base: int

    @property
    def blocks(self) -> tuple[int, int]:
        """Bytes of K and of V of one layer in one page."""
        return (
            self.page_size * self.heads * self.widths[0] * self.size,
            self.page_size * self.heads * self.widths[1] * self.size,
        )


Address = Callable[[Facts, int, int, int, int, int, int], int]
"""``(facts, field, layer_index, page, place, head, dim)``: the first byte of an element; field 0 is K, 1 is V."""


def _nhd(f: Facts, field: int, place: int, head: int, dim: int) -> int:
    return ((place * f.heads + head) * f.widths[field] + dim) * f.size


def _hnd(f: Facts, field: int, place: int, head: int, dim: int) -> int:
    return ((head * f.page_size + place) * f.widths[field] + dim) * f.size


def _page_major(inside: Callable[[Facts, int, int, int, int], int]) -> Address:
    def address(f: Facts, field: int, layer: int, page: int, place: int, head: int, dim: int) -> int:
        envelope = f.base + page * f.page_stride + layer * (f.blocks[0] + f.blocks[1])
        return envelope + field * f.blocks[0] + inside(f, field, place, head, dim)

    return address


def _layer_major(inside: Callable[[Facts, int, int, int, int], int]) -> Address:
    def address(f: Facts, field: int, layer: int, page: int, place: int, head: int, dim: int) -> int:
        start = f.base + field * len(LAYERS) * f.num_pages * f.blocks[0]
        return start + (layer * f.num_pages + page) * f.blocks[field] + inside(f, field, place, head, dim)

    return address


def _token_major(f: Facts, field: int, layer: int, page: int, place: int, head: int, dim: int) -> int:
    rows = (f.heads * f.widths[0] * f.size, f.heads * f.widths[1] * f.size)
    entry = len(LAYERS) * sum(rows)
    at = f.base + page * f.page_stride + place * entry + layer * sum(rows) + field * rows[0]
    return at + (head * f.widths[field] + dim) * f.size


def _nz(f: Facts, field: int, layer: int, page: int, place: int, head: int, dim: int) -> int:
    x = 32 // f.size
    blocks = [-(-block // 512) * 512 for block in f.blocks]
    flat = head * f.widths[field] + dim
    element = (flat // x) * f.page_size * x + place * x + flat % x
    return f.base + page * f.page_stride + layer * sum(blocks) + field * blocks[0] + element * f.size


def _digit(page_size: int) -> int:
    """The x of a cache ``[heads, ps/x, dim, x]``."""
    return next(x for x in (8, 3, 1) if page_size % x == 0)


def _shuffled_v(f: Facts, field: int, layer: int, page: int, place: int, head: int, dim: int) -> int:
    if field == 0:
        return _page_major(_nhd)(f, field, layer, page, place, head, dim)
    x = _digit(f.page_size)
    element = ((head * (f.page_size // x) + place // x) * f.widths[1] + dim) * x + place % x
    return f.base + page * f.page_stride + layer * sum(f.blocks) + f.blocks[0] + element * f.size


def shuffled_v(spec: Spec, page_size: int) -> PoolLayout:
    """K as ``[ps, heads, dim]`` beside V as ``[heads, ps/x, dim, x]``: the place of a token has two digits in V."""
    keys, values = spec.fields()
    size = keys.row_bytes // (keys.row_shape[0] * keys.row_shape[1])
    heads, width = values.row_shape
    x = _digit(page_size)
    both = page_size * (keys.row_bytes + values.row_bytes)
    page = len(keys.layers) * both
    k_row = (keys.row_shape[1] * size, size)
    k = FieldLayout("k", keys.dtype, keys.layers, keys.row_shape, k_row, (page_size,), (keys.row_bytes,), 0, both, page)
    v_row = (page_size * width * size, x * size)
    v_token = (width * x * size, size)
    base = page_size * keys.row_bytes
    v = FieldLayout("v", keys.dtype, keys.layers, (heads, width), v_row, (page_size // x, x), v_token, base, both, page)
    return PoolLayout((k, v), (("k", ("row",)), ("v", ("page",))))


@dataclass(frozen=True)
class Layout:
    """A constructor, the oracle's address for it, and rows that it can hold."""

    make: Callable[[Spec, int], PoolLayout]
    address: Address
    heads: int = 3
    widths: tuple[int, int] = (6, 4)


LAYOUTS = {
    "page-major NHD row": Layout(page_major, _page_major(_nhd)),
    "page-major NHD block": Layout(lambda s, p: page_major(s, p, forms=("block",)), _page_major(_nhd)),
    "page-major HND row": Layout(lambda s, p: page_major(s, p, order="HND"), _page_major(_hnd)),
    "page-major HND block": Layout(lambda s, p: page_major(s, p, order="HND", forms=("block",)), _page_major(_hnd)),
    "page-major HND page": Layout(lambda s, p: page_major(s, p, order="HND", forms=("page",)), _page_major(_hnd)),
    "token-major row": Layout(token_major, _token_major),
    "token-major page": Layout(lambda s, p: token_major(s, p, forms=("page",)), _token_major),
    "layer-major NHD row": Layout(layer_major, _layer_major(_nhd)),
    "layer-major HND block": Layout(lambda s, p: layer_major(s, p, order="HND", forms=("block",)), _layer_major(_hnd)),
    "nz block": Layout(nz, _nz, 1, (32, 64)),
    "nz page": Layout(lambda s, p: nz(s, p, forms=("page",)), _nz, 1, (32, 64)),
    "shuffled V": Layout(shuffled_v, _shuffled_v),
}


@dataclass
class Rig:
    """A pool full of random bytes with a zero sink, and what is needed to say where each row of it lies."""

    layout: Layout
    facts: Facts
    pool: StatePool
    sub: SubPool
    ids: KernelIds
    physical: list[int]

    def elements(self, field: int, layer: int, token: int) -> Iterator[int]:
        """First bytes of the elements of one row, heads first; ``layer`` is a row index, ``token`` physical."""
        page, place = divmod(token, self.facts.page_size)
        for head in range(self.facts.heads):
            for dim in range(self.facts.widths[field]):
                yield self.layout.address(self.facts, field, layer, page, place, head, dim)

    def put(self, image: bytearray, field: int, layer: int, token: int, row: Tensor) -> None:
        """Store one row into an image of the buffer."""
        data, size = raw(row), self.facts.size
        for n, at in enumerate(self.elements(field, layer, token)):
            image[at : at + size] = data[n * size : (n + 1) * size]

    def image(self) -> bytearray:
        """The buffer's bytes."""
        return bytearray(raw(self.pool.buffer))


def raw(tensor: Tensor) -> bytes:
    """A tensor's bytes."""
    return bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())


def bits(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Random bit patterns, NaN included: a store must not alter one."""
    generator = torch.Generator().manual_seed(seed)
    *outer, last = shape
    data = torch.randint(0, 256, (*outer, last * dtype.itemsize), generator=generator, dtype=torch.uint8)
    return data.view(dtype)


def rig(
    name: str,
    page_size: int,
    dtype: str,
    tokens: int = 5,
    *,
    heads: int = 0,
    widths: tuple[int, int] | None = None,
    check: bool = False,
) -> Rig:
    """A pool of two sub-pools, ``"kv"`` in the layout of that name, with ``tokens`` tokens allocated in it."""
    layout = LAYOUTS[name]
    heads, widths = heads or layout.heads, widths or layout.widths
    spec = Attention("kv", LAYERS, heads, widths[0], dtype, v_head_dim=widths[1])
    other = Attention("other", (0,), heads, widths[0], dtype, v_head_dim=widths[1])
    plan = statehal.plan([other, spec], tokens=3 * page_size + tokens, page_size=page_size, layouts=layout.make)
    pool = StatePool(plan, "cpu", statehal.bind("cpu", "reference").memory, check=check)
    sub = pool["kv"]
    hole = pool.alloc(1, "kv")  # so that virtual and physical pages differ
    pool.alloc(1, "other")
    pages = pool.alloc(tokens, "kv")
    pool.free(hole)
    virtual = pages.token_ids()
    ids, physical = sub.kernel_ids(virtual), sub.physical_ids(virtual).tensor.tolist()
    size = getattr(torch, dtype).itemsize
    facts = Facts(page_size, heads, widths, size, sub.layout.page_bytes, sub.layout.num_pages, sub.plan.region.offset)
    made = Rig(layout, facts, pool, sub, ids, physical)
    pool.buffer.copy_(bits(pool.buffer.numel(), dtype=torch.uint8, seed=1))
    image = made.image()
    for field in (0, 1):
        for index in range(len(LAYERS)):
            for place in range(page_size):
                for at in made.elements(field, index, place):
                    image[at : at + size] = bytes(size)
    pool.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
    return made
