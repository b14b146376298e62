"""Writing the number 1 through the views of a pool, and finding it in the bytes."""

import random
from typing import Any

from statehal.layout import FieldLayout
from statehal.pool import StatePool, SubPool
from statehal.testing.oracles.bytes import address, first_difference
from statehal.testing.oracles.layouts import ONE, numbered
from statehal.testing.target import Target


def reaches(target: Target, pool: StatePool, name: str, seed: int) -> str:
    """What is wrong with kernel ids and views of a sub-pool; empty where nothing is.

    For every field and form in use it takes a token with an id of the pool, and the last token of the last page with
    the id by definition; a random layer and element each.

    Args:
        seed: of layers, tokens and elements.
    """
    sub, chance = pool[name], random.Random(seed)
    slots = sub.spec.kind == "slots"
    room = 1 if slots else 2 * sub.page_size
    pages = pool.alloc(room, name)
    ids = sub.kernel_ids(pages.page_ids() if slots else pages.token_ids())
    for field in sub.layout.fields:
        for kind in sub.layout.kinds(field.name):
            token = chance.choice([0, room - 1, chance.randrange(room)])
            page, place = sub.member.table[pages.ids[token // sub.page_size]], token % sub.page_size
            one = int(ids.of(sub.layout.form(field.name, kind))[token])
            last = sub.layout.num_pages - 1, sub.page_size - 1
            for at, kernel_id in (((page, place), one), (last, numbered(field, kind, *last))):
                wrong = _marked(target, pool, sub, field, kind, at, kernel_id, chance)
                if wrong:
                    return f"{kind} id {kernel_id} of {field.name!r}, page {at[0]} place {at[1]}: {wrong}"
    return ""


def _marked(
    target: Target,
    pool: StatePool,
    sub: SubPool,
    field: FieldLayout,
    kind: Any,
    at: tuple[int, int],
    kernel_id: int,
    chance: random.Random,
) -> str:
    layer = chance.choice(chance.choice(field.layers))
    element = tuple(chance.randrange(size) for size in field.row_shape)
    index: tuple[int, ...] = (kernel_id,)
    if kind != "row":
        entry, place = divmod(kernel_id, sub.page_size)
        digits: list[int] = []
        for size in reversed(field.token_shape):
            place, digit = divmod(place, size)
            digits.insert(0, digit)
        index = (entry, *digits)
    view = sub.view(field.name, layer, kind)
    if not 0 <= index[0] < view.shape[0]:
        return f"the view has entries 0 to {view.shape[0] - 1}, and the id is entry {index[0]}"
    wanted = target.image(pool)
    start = address(field, layer, *at, element)
    raw = ONE[field.dtype]
    wanted[start : start + len(raw)] = raw
    view[(*index, *element)] = 1
    different = first_difference(pool, wanted, target.image(pool))
    view[(*index, *element)] = 0
    return f"layer {layer}, element {element}, byte {start}: {different}" if different else ""
