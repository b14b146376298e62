"""``move``: all fields and layers, as if every row were read before any is written."""

import random

import pytest
import torch

import statehal
from reference.kv_oracle import LAYERS, LAYOUTS, Rig, raw, rig
from statehal.errors import ArgumentError
from statehal.ids import KernelIds


def check_move(made: Rig, to: list[int], source: list[int]) -> None:
    """Move between positions of the rig's tokens; a negative position is padding."""
    before = made.image()
    expected = bytearray(before)
    for target, origin in zip(to, source, strict=True):
        if target < 0:
            continue
        for field in (0, 1):
            for layer in range(len(LAYERS)):
                targets = made.elements(field, layer, made.physical[target])
                for n, at in enumerate(targets):
                    data = bytes(made.facts.size)
                    if origin >= 0:
                        origins = list(made.elements(field, layer, made.physical[origin]))
                        data = bytes(before[origins[n] : origins[n] + made.facts.size])
                    expected[at : at + made.facts.size] = data
    statehal.bind("cpu", "reference").kv(made.sub).move(pick(made, to), pick(made, source))
    assert made.image() == expected


def pick(made: Rig, positions: list[int]) -> KernelIds:
    where = torch.tensor(positions, dtype=torch.int64)
    tensors = [tensor[where.clamp(min=0)].where(where >= 0, -1) for tensor in made.ids.tensors]
    return KernelIds(made.ids.space, tensors, made.ids.epoch)


MOVES: tuple[tuple[list[int], list[int]], ...] = (
    ([], []),
    ([0], [3]),
    ([0, 1, 2, 3], [1, 2, 3, 4]),
    ([1, 2, 3, 4], [0, 1, 2, 3]),
    ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]),
    ([0, 1], [2, 2]),
    ([2], [2]),
    ([-1, 0, -1], [1, 2, 3]),
    ([0, 1, 2], [-1, 4, -1]),
    ([-1], [-1]),
)


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_move_whole(name: str) -> None:
    made = rig(name, 3, "bfloat16")
    for to, source in MOVES:
        check_move(made, to, source)


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "float8_e5m2", "int8", "float32", "int64"])
def test_bits_of_every_kind_of_dtype_arrive(dtype: str) -> None:
    check_move(rig("page-major NHD row", 3, dtype), [0, 1, -1, 3], [1, 0, 2, -1])


@pytest.mark.parametrize("name", ["page-major NHD row", "token-major row", "shuffled V"])
def test_random_permutations(name: str) -> None:
    chance = random.Random(7)
    made = rig(name, 4, "float16", tokens=9)
    for _ in range(30):
        to = chance.sample(range(9), chance.randint(1, 9))
        check_move(made, to, [chance.randrange(-1, 9) for _ in to])


def test_layers_that_share_rows_and_fields_of_some_layers() -> None:
    row = statehal.ExtraField("index", (3,), "uint8", layers=(9,))
    spec = statehal.Attention("kv", (4, 9), 2, 4, "float32", shared=((5, 4),), extra=(row,))
    hal = statehal.bind("cpu", "reference")
    pool = hal.allocate(hal.plan([spec], tokens=8, page_size=4))
    sub = pool["kv"]
    ids = sub.kernel_ids(pool.alloc(6).token_ids())
    for layer in (5, 9):
        sub.view("k", layer)[ids.of(sub.layout.form("k"))] = torch.arange(48.0).view(6, 2, 4) + layer
    view = sub.view("index", 9)
    where = ids.of(sub.layout.form("index"))
    view[where] = torch.arange(18, dtype=torch.uint8).view(6, 3)
    hal.kv(sub).move(ids[:5], ids[1:])
    for layer in (4, 5, 9):
        moved = sub.view("k", layer)[ids.of(sub.layout.form("k"))]
        base = 5 if layer == 4 else layer
        assert moved[:, 0, 0].tolist() == [base + 8 * n for n in (1, 2, 3, 4, 5, 5)]
    assert view[where][:, 2].tolist() == [5, 8, 11, 14, 17, 17]


def test_shapes_that_differ_are_refused() -> None:
    made = rig("page-major NHD row", 3, "float32")
    before = raw(made.pool.buffer)
    with pytest.raises(ArgumentError, match=r"move in 'kv': dst has shape \[2\] and src \[3\]: expected one shape"):
        statehal.bind("cpu", "reference").kv(made.sub).move(made.ids[:2], made.ids[:3])
    assert raw(made.pool.buffer) == before


def test_a_target_that_is_named_twice_is_an_error_under_check() -> None:
    made = rig("shuffled V", 3, "float32", check=True)
    writer = statehal.bind("cpu", "reference", check=True).kv(made.sub)
    before = made.image()
    at = int(made.ids.tensors[0][2])
    with pytest.raises(ArgumentError, match=rf"^move in 'kv': dst name token {at} twice: expected each once$"):
        writer.move(pick(made, [1, 2, 0, 2]), pick(made, [0, 1, 2, 3]))
    assert made.image() == before
    writer.move(pick(made, [-1, 2, -1, 0]), pick(made, [2, 2, 3, 2]))
