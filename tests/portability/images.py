"""What pools and payloads hold, byte by byte: integer loops over addresses, and no plan of the code under test."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from portability.models import LAYOUTS, Model, Row, content
from statehal import Binding, bind, plan
from statehal.layout import FieldLayout, PoolLayout
from statehal.pool import Pages, StatePool, SubPool
from statehal.portability import Topology
from statehal.spec import ConvRecurrent, Spec
from statehal.testing.oracles.bytes import address

HAL = bind("cpu", "reference")


def make_pool(
    specs: Sequence[Spec], layout: str | dict[str, str], page_size: int, tokens: int, hal: Binding = HAL, slots: int = 3
) -> StatePool:
    """A pool whose sub-pools have these layouts by name; freed pages keep their bytes."""
    names = layout if isinstance(layout, dict) else {spec.name: layout for spec in specs}

    def of(spec: Spec, size: int) -> PoolLayout:
        return LAYOUTS[names[spec.name]](spec, size)

    made = plan(specs, tokens=tokens, requests=slots, page_size=page_size, layouts=of, waste_limit=0.9)
    return hal.allocate(made, hygiene="none")


def scattered(pool: StatePool, name: str, tokens: int) -> Pages:
    """A handle whose physical pages do not follow each other, in a pool that was full of other bytes."""
    size = pool[name].page_size
    pages = pool.alloc(min(tokens, size), name)
    others = [pool.alloc(size, name)]
    while pages.tokens < tokens:
        pool.extend(pages, min(size, tokens - pages.tokens))
        if len(others) < 3:
            others.append(pool.alloc(size, name))
    pool.flush()
    return pages


def physical(sub: SubPool, pages: Pages) -> list[int]:
    return [int(one) for one in sub.physical_ids(pages.page_ids()).tensor]


def element(field: FieldLayout, index: int) -> tuple[int, ...]:
    """The position of a row's element by its number, last axis fastest."""
    found: list[int] = []
    for size in reversed(field.row_shape):
        found.insert(0, index % size)
        index //= size
    return tuple(found)


def live_row(sub: SubPool, cursor: int, index: int) -> int:
    """Which row of a window is the ``index``-th oldest."""
    spec, conv = sub.spec, sub.layout.conv
    assert isinstance(spec, ConvRecurrent)
    assert conv is not None
    rows = (spec.width - 1) + (spec.verify_tokens - 1)
    if conv.protocol == "ring":
        return (cursor + index) % rows
    return cursor + index if conv.protocol == "offset" else rows - (spec.width - 1) + index


def head_bytes_at(
    sub: SubPool, model: Model, row: Row, layer: int, page: int, place: int, head: int, first: int, cursor: int = 0
) -> Iterator[int]:
    """Byte addresses of one head of one row, in the order of its bytes.

    Args:
        page: physical.
        place: of the token in its page, or of the window's rows the ``place``-th oldest.
        head: of the model.
        first: the model's head that the rank keeps first.
    """
    field = sub.layout.field(row.field)
    count = row.head_bytes // row.itemsize
    start = (head - first) * count
    if row.field == "conv":
        start += channels_before(sub, model, row)
    for number in range(count):
        if row.field == "conv":
            which, channel = live_row(sub, cursor, place), start + number
            first_axis = sub.layout.conv is not None and sub.layout.conv.window_order == "rows_first"
            at = address(field, layer, page, 0, (which, channel) if first_axis else (channel, which))
        else:
            at = address(field, layer, page, 0 if row.live else place, element(field, start + number))
        yield from range(at, at + row.itemsize)


def channels_before(sub: SubPool, model: Model, row: Row) -> int:
    """Channels of the rank's earlier sections, which lie one after another."""
    spec = sub.spec
    assert isinstance(spec, ConvRecurrent)
    assert spec.sections is not None
    names = [one.name for one in model.rows if one.field == "conv"]
    return sum(spec.sections[: names.index(row.name)])


def kept_heads(row: Row, tensor: int, index: int) -> range:
    """The model's heads that one of ``tensor`` ranks keeps, by counting them out."""
    if row.heads == 1:
        return range(1)
    if row.heads >= tensor:
        return range(index * (row.heads // tensor), (index + 1) * (row.heads // tensor))
    head = index // (tensor // row.heads)
    return range(head, head + 1)


def fill_tokens(
    sub: SubPool, model: Model, pages: Pages, tokens: int, topology: Topology | None = None, rank: int = 0
) -> None:
    """Store every byte of tokens 0 to ``tokens`` at its address."""
    image = bytearray(raw(sub.buffer))
    for at, value in token_bytes(sub, model, pages, range(tokens), topology or Topology(), rank):
        image[at] = value
    sub.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))


def token_bytes(
    sub: SubPool,
    model: Model,
    pages: Pages,
    tokens: Iterable[int],
    topology: Topology,
    rank: int,
    only: range | None = None,
) -> Iterator[tuple[int, int]]:
    """Address and value of every byte of these tokens in a rank's sub-pool.

    Args:
        only: the model's heads of divided rows; by default those that the rank keeps.
    """
    numbers, size = physical(sub, pages), sub.page_size
    index = topology.place(rank).tensor
    for token in tokens:
        for row in model.rows:
            heads = kept_heads(row, topology.tensor, index)
            for layer in (one for one in row.layers if one in sub.spec.layers):
                for head in heads if row.heads == 1 or only is None else only:
                    values = content(row.name, layer, head, token, row.head_bytes)
                    places = head_bytes_at(
                        sub, model, row, layer, numbers[token // size], token % size, head, heads.start
                    )
                    yield from zip(places, values, strict=True)


def slot_bytes(
    sub: SubPool, model: Model, slot: int, cursor: int, topology: Topology, rank: int, point: int = 0
) -> Iterator[tuple[int, int]]:
    """Address and value of every live byte of a slot: row ``i`` of a window is the ``i``-th oldest."""
    index = topology.place(rank).tensor
    for row in model.rows:
        heads = kept_heads(row, topology.tensor, index)
        for layer in (one for one in row.layers if one in sub.spec.layers):
            for head in heads:
                for place in range(row.live):
                    values = content(row.name, layer, head, 1000 * point + place, row.head_bytes)
                    places = head_bytes_at(sub, model, row, layer, slot, place, head, heads.start, cursor)
                    yield from zip(places, values, strict=True)


def payload(
    model: Model, part: dict[str, Any], first_token: int, tokens: int, point: int = 0, head_groups: int = 16
) -> bytes:
    """A part's payload by its definition: ``[layer][section][head][row][dim]``.

    Args:
        part: ``layers`` and ``heads`` of ``PartLayout.as_dict()``.
        head_groups: most groups, which divides the heads of the models that are cut by it.
    """
    start, stop = part["layers"]
    group = part["heads"]
    found = bytearray()
    for layer in model.spec.layers[start:stop]:
        for row in model.rows:
            cut = min(row.heads, head_groups)
            if layer not in row.layers or (None if row.heads == 1 else cut) != (group and group[1]):
                continue
            each = row.heads // cut
            number = group[0] if group else 0
            for head in range(each * number, each * (number + 1)):
                for index in range(row.live or tokens):
                    which = 1000 * point + index if row.live else first_token + index
                    found += content(row.name, layer, head, which, row.head_bytes)
    return bytes(found)


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.tolist())
