"""Inputs on which engines store or load something else than the model's state, and what is right."""

from dataclasses import replace
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portability.images import HAL, fill_tokens, make_pool, payload, raw, scattered, slot_bytes
from portability.models import BY_NAME, LAYOUTS, Model, Row, content
from portability.worker import OBJECTS, Rank
from statehal import Attention, Latent
from statehal.portability import CanonicalState, Grouping, ObjectLayout, RankSubPool, Topology, rank_object, shard
from statehal.portability.store import FileStore, Namespace
from statehal.spec import ExtraField


def canonical(
    model: Model, topology: Topology, rank: int, layout: str, page_size: int, tokens: int = 8
) -> dict[str, bytes]:
    """The parts of a rank's first object, by id."""
    pool = make_pool(shard([model.spec], topology, rank), layout, page_size, tokens=8 * tokens)
    sub = pool[model.spec.name]
    grouping = Grouping.of([model.spec], object_tokens=tokens)
    state = CanonicalState(HAL, RankSubPool(sub, [model.spec], topology, rank, grouping))
    if model.spec.kind == "tokens":
        pages = scattered(pool, sub.name, tokens)
        fill_tokens(sub, model, pages, tokens, topology, rank)
    else:
        pages = pool.alloc(1, sub.name)
        pool.flush()
        image = bytearray(raw(sub.buffer))
        (number,) = sub.physical_ids(pages.page_ids()).tensor.tolist()
        for at, value in slot_bytes(sub, model, number, 0, topology, rank):
            image[at] = value
        sub.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
    buffer = state.gather(pages)
    parts = zip(state.object.parts, state.object.offsets, strict=True)
    return {part.id: raw(buffer[at : at + part.nbytes]) for part, at in parts}


def test_all_132_bytes_of_an_indexer_row_arrive_from_the_middle_of_a_page() -> None:
    spec = Latent("mla", (0, 1), 24, 8, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8"),))
    model = Model(spec, (Row("latent", "latent", 1, 64, 2, (0, 1)), Row("indexer", "indexer", 1, 132, 1, (0, 1))))
    pool = make_pool([spec], "NHD", 16, tokens=64)
    pages = scattered(pool, "mla", 24)
    fill_tokens(pool["mla"], model, pages, 24)
    state = CanonicalState(HAL, RankSubPool(pool["mla"], [spec], grouping=Grouping.of([spec], object_tokens=4)))
    for first in (0, 4, 12, 20):
        buffer = state.gather(pages, first)
        at = next(at for at, piece in state.object.pieces() if piece.section.name == "indexer")
        rows = [raw(buffer[at + 132 * n : at + 132 * (n + 1)]) for n in range(4)]
        assert rows == [content("indexer", 0, 0, first + n, 132) for n in range(4)]


def test_more_ranks_than_heads_have_parts_of_one_size_and_write_each_once(tmp_path: Path) -> None:
    """Eight ranks over four heads store what one rank stores, and read it."""
    model, eight = BY_NAME["full"], Topology(tensor=8)
    alone = FileStore(tmp_path / "one")
    Rank(HAL, model, Topology(), 0, "NHD", 16).store(alone)
    together = FileStore(tmp_path / "eight")
    for rank in range(8):
        Rank(HAL, model, eight, rank, "HND", 16).store(together)
    assert together.counts()["put"] == alone.counts()["put"] == {"done": OBJECTS * 3 * 4}
    for rank in range(8):
        Rank(HAL, model, eight, rank, "HND", 16).load(alone)
    Rank(HAL, model, Topology(), 0, "token-major", 3).load(together)


def test_two_layers_have_the_same_bytes_under_one_and_two_ranks() -> None:
    spec = Attention("pair", (0, 1), 4, 16, "bfloat16")
    model = Model(spec, (Row("k", "k", 4, 32, 2, (0, 1)), Row("v", "v", 4, 32, 2, (0, 1))))
    one = canonical(model, Topology(), 0, "NHD", 16)
    two = [canonical(model, Topology(tensor=2), rank, "NHD", 16) for rank in range(2)]
    assert set(two[0]) | set(two[1]) == set(one)
    assert not set(two[0]) & set(two[1])
    assert {**two[0], **two[1]} == one


def test_replicated_sections_are_stored_once_and_not_joined_rank_by_rank() -> None:
    """One group of B and C beside a divided x: every rank keeps B and C whole."""
    model = BY_NAME["ssm"]
    one = canonical(model, Topology(), 0, "ring", 16)
    four = [canonical(model, Topology(tensor=4), rank, "offset, channels first", 16) for rank in range(4)]
    whole = {f"layers{n}-{n + 1}.whole" for n in range(2)}
    for number, rank in enumerate(four):
        assert set(rank) == whole | {f"layers{n}-{n + 1}.heads{number}of4" for n in range(2)}
        assert rank.items() <= one.items()
    assert {key: value for rank in four for key, value in rank.items()} == one


def test_packed_k_and_v_are_no_two_heads() -> None:
    """A page of packed K|V of two heads has the shape of a page of K and V apart: the layout says which it is."""
    spec = Attention("two", (0,), 2, 16, "bfloat16")
    apart, packed = (LAYOUTS[name](spec, 4) for name in ("NHD", "packed"))
    assert apart.page_bytes == packed.page_bytes
    assert [field.row_shape for field in apart.fields] == [field.row_shape for field in packed.fields]
    model = Model(spec, (Row("k", "k", 2, 32, 2, (0,)), Row("v", "v", 2, 32, 2, (0,))))
    found = [canonical(model, Topology(), 0, name, 4) for name in ("NHD", "packed", "HND", "NZ")]
    assert found[0] == found[1] == found[2] == found[3]
    part = {"layers": (0, 1), "heads": (0, 2)}
    assert found[0]["layers0-1.heads0of2"] == payload(model, part, 0, 8)


def test_what_is_not_certified_has_a_namespace_for_each_rank() -> None:
    spec = replace(Latent("mla", (0, 1), 24, 8, "bfloat16"), window=8)
    shares = [
        RankSubPool(make_pool([spec], layout, 4, tokens=32)["mla"], [spec], topology, rank)
        for layout, topology, rank in (
            ("NHD", Topology(), 0),
            ("NHD", Topology(tensor=2), 0),
            ("NHD", Topology(tensor=2), 1),
            ("HND", Topology(tensor=2), 1),
        )
    ]
    names = [
        Namespace.of(one.spec, model="m", revision="1", grouping=one.grouping, exact=one.exact).digest for one in shares
    ]
    assert len(set(names)) == 3
    assert names[2] == names[3]  # another layout of the same rank


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_part_is_one_size_whatever_the_world(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(list(BY_NAME.values())))
    spec = model.spec
    grouping = Grouping.of([spec], object_tokens=data.draw(st.sampled_from((1, 16, 256))))
    whole = rank_object([spec], spec.name, grouping, Topology(), 0)
    assert whole is not None
    sizes = {part.id: part for part in whole.parts}
    topology = Topology(tensor=data.draw(st.sampled_from((1, 2, 4, 8))), pipeline=data.draw(st.sampled_from((1, 2, 3))))
    held: list[ObjectLayout] = []
    for rank in range(topology.world_size):
        found = rank_object([spec], spec.name, grouping, topology, rank)
        held += [found] if found else []
        assert all(part == sizes[part.id] for part in (found.parts if found else ()))
    assert {part.id for one in held for part in one.parts} == set(sizes)
