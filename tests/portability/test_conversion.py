"""Copies straight between two layouts: these bytes of these tokens, and no other."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portability.images import HAL, fill_tokens, make_pool, physical, raw, scattered, slot_bytes, token_bytes
from portability.models import BY_NAME, CONV_LAYOUTS, MODELS, Model, layouts_of
from statehal import Attention
from statehal.errors import ArgumentError
from statehal.pool import SubPool
from statehal.portability import Conversion, RankSubPool, Topology, shard

TOKEN_MODELS = [model for model in MODELS if model.spec.kind == "tokens"]


def share(
    model: Model, layout: str, page_size: int, topology: Topology | None = None, rank: int = 0
) -> tuple[SubPool, RankSubPool]:
    topology = topology or Topology()
    pool = make_pool(shard([model.spec], topology, rank), layout, page_size, tokens=96)
    sub = pool[model.spec.name]
    return sub, RankSubPool(sub, [model.spec], topology, rank)


def noise(sub: SubPool, seed: int) -> None:
    sub.buffer.copy_(torch.frombuffer(bytearray(random.Random(seed).randbytes(sub.buffer.numel())), dtype=torch.uint8))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_tokens_arrive_whatever_the_two_layouts_and_page_sizes(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(TOKEN_MODELS))
    sizes = [data.draw(st.sampled_from((3, 4, 16))) for _ in range(2)]
    ends = [share(model, data.draw(st.sampled_from(layouts_of(model, size))), size) for size in sizes]
    (a, source), (b, destination) = ends
    tokens = data.draw(st.integers(1, 20))
    read_at, write_at = (data.draw(st.sampled_from((0, 0, 4, 5))) for _ in range(2))
    there = scattered(a.pool, a.name, read_at + tokens)
    here = scattered(b.pool, b.name, write_at + tokens)
    noise(a, 1)
    noise(b, 2)
    fill_tokens(a, model, there, read_at + tokens)
    expected = bytearray(raw(b.buffer))
    before = raw(a.buffer)
    for n in range(tokens):
        read = token_bytes(a, model, there, [read_at + n], Topology(), 0)
        written = token_bytes(b, model, here, [write_at + n], Topology(), 0)
        for (_, value), (at, _) in zip(read, written, strict=True):
            expected[at] = value
    Conversion(HAL, source, destination).copy(there, here, tokens, from_token=read_at, to_token=write_at)
    assert raw(b.buffer) == bytes(expected)
    assert raw(a.buffer) == before


@pytest.mark.parametrize("model", [BY_NAME[name] for name in ("gdn", "ssm", "nemo")], ids=str)
@pytest.mark.parametrize("target", CONV_LAYOUTS)
def test_live_rows_arrive_where_the_other_cursor_has_its_own(model: Model, target: str) -> None:
    for layout in CONV_LAYOUTS:
        (a, source), (b, destination) = share(model, layout, 16), share(model, target, 16)
        there, here = a.pool.alloc(2, a.name), b.pool.alloc(2, b.name)
        cursors = []
        for sub, seed in ((a, 1), (b, 2)):
            sub.pool.flush()
            noise(sub, seed)
            protocol = sub.layout.conv.protocol if sub.layout.conv else ""
            cursors.append(1 if protocol == "ring" else 0)
            sub.view("cursor", model.spec.layers[0], "page")[:] = cursors[-1]
        image = bytearray(raw(a.buffer))
        for at, value in slot_bytes(a, model, physical(a, there)[1], cursors[0], Topology(), 0):
            image[at] = value
        a.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
        expected = bytearray(raw(b.buffer))
        for at, value in slot_bytes(b, model, physical(b, here)[1], cursors[1], Topology(), 0):
            expected[at] = value
        Conversion(HAL, source, destination).copy(there[1], here[1])
        assert raw(b.buffer) == bytes(expected), layout


def test_a_slot_of_a_handle_is_chosen_by_its_number() -> None:
    model = BY_NAME["ssm"]
    (a, source), (b, destination) = share(model, "ring", 16), share(model, "rollback, padded", 16)
    there, here = a.pool.alloc(3, a.name), b.pool.alloc(3, b.name)
    for sub, seed in ((a, 1), (b, 2)):
        sub.pool.flush()
        noise(sub, seed)
        sub.view("cursor", model.spec.layers[0], "page")[:] = 0
    image = bytearray(raw(a.buffer))
    for at, value in slot_bytes(a, model, physical(a, there)[2], 0, Topology(), 0):
        image[at] = value
    a.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
    expected = bytearray(raw(b.buffer))
    for at, value in slot_bytes(b, model, physical(b, here)[1], 0, Topology(), 0):
        expected[at] = value
    Conversion(HAL, source, destination).copy(there, here, from_token=2, to_token=1)
    assert raw(b.buffer) == bytes(expected)


@pytest.mark.parametrize("model", [BY_NAME[name] for name in ("full", "fp8", "mla")], ids=str)
def test_heads_that_two_shares_have_in_common(model: Model) -> None:
    """From the second of four ranks to the first of two: one head of the two that it keeps, or whole rows."""
    (a, source), (b, destination) = (
        share(model, "HND", 4, Topology(tensor=4), 1),
        share(model, "NHD", 3, Topology(tensor=2), 0),
    )
    there, here = scattered(a.pool, a.name, 9), scattered(b.pool, b.name, 9)
    fill_tokens(a, model, there, 9, Topology(tensor=4), 1)
    noise(b, 2)
    expected = bytearray(raw(b.buffer))
    for at, value in token_bytes(b, model, here, range(9), Topology(tensor=2), 0, only=range(1, 2)):
        expected[at] = value
    Conversion(HAL, source, destination).copy(there, here, 9)
    assert raw(b.buffer) == bytes(expected)


def test_one_section_and_some_heads_of_it() -> None:
    model = BY_NAME["full"]
    (a, source), (b, destination) = share(model, "NHD", 4), share(model, "NZ", 16)
    there, here = scattered(a.pool, "full", 8), scattered(b.pool, "full", 8)
    fill_tokens(a, model, there, 8)
    b.buffer.zero_()
    expected = bytearray(raw(b.buffer))
    v = Model(model.spec, (model.rows[1],))
    for at, value in token_bytes(b, v, here, range(8), Topology(), 0, only=range(1, 3)):
        expected[at] = value
    Conversion(HAL, source, destination, only=["v"], heads=(1, 3)).copy(there, here, 8)
    assert raw(b.buffer) == bytes(expected)


def test_what_is_no_share_of_the_model_is_refused() -> None:
    (_, full), (_, swa) = share(BY_NAME["full"], "NHD", 4), share(BY_NAME["swa"], "NHD", 4)
    with pytest.raises(ArgumentError, match=r"^'full' and 'swa' are no shares of one model on one device: sections"):
        Conversion(HAL, full, swa)
    with pytest.raises(ArgumentError, match=r"^no sections \['w'\] in 'full': it has \['k', 'v'\]$"):
        Conversion(HAL, full, full, only=["w"])
    with pytest.raises(ArgumentError, match=r"have no layers and heads of what is asked for in common"):
        Conversion(HAL, full, full, heads=(2, 2))
    (_, gdn) = share(BY_NAME["gdn"], "ring", 4)
    with pytest.raises(ArgumentError, match=r"^only=\['state'\] of 'gdn': the fields of a slot are one checkpoint$"):
        Conversion(HAL, gdn, gdn, only=["state"])


def test_what_is_not_certified_is_converted_between_pools_of_one_rank_only() -> None:
    """Both ranks keep rows of one shape, and different heads in them."""
    spec, topology = Attention("six", (0,), 6, 8, "bfloat16"), Topology(tensor=4)
    local = replace(spec, kv_heads=2)
    pools = [make_pool([local], layout, 4, tokens=32) for layout in ("NHD", "HND")]
    first, second = (RankSubPool(pool["six"], [spec], topology, rank) for rank, pool in enumerate(pools))
    assert first.exact == (topology, 0)
    with pytest.raises(
        ArgumentError, match=r"^'six' is not certified \(6 heads of 'k' do not .*\): only two pools of one"
    ):
        Conversion(HAL, first, second)
    same = RankSubPool(pools[1]["six"], [spec], topology, 0)
    there, here = (pool.alloc(8) for pool in pools)
    pools[0]["six"].view("k", 0, "page")[:] = 1
    Conversion(HAL, first, same).copy(there, here, 8)
    assert pools[1]["six"].view("k", 0, "page")[physical(pools[1]["six"], here)].eq(1).all()


def test_handles_hold_what_is_copied() -> None:
    (a, full), (gdn_sub, gdn) = share(BY_NAME["full"], "NHD", 4), share(BY_NAME["gdn"], "ring", 4)
    pages, slots = a.pool.alloc(8, "full"), gdn_sub.pool.alloc(2, "gdn")
    conversion = Conversion(HAL, full, full)
    with pytest.raises(ArgumentError, match=r"^tokens 4 to 9 of 'full': the handle holds 8 tokens$"):
        conversion.copy(pages, pages, 5, from_token=4)
    with pytest.raises(ArgumentError, match=r"^tokens 6 to 11 of 'full': the handle holds 8 tokens$"):
        conversion.copy(pages, pages, 5, to_token=6)
    with pytest.raises(ArgumentError, match=r"^copy of 2 slots of 'gdn': expected one slot of each handle$"):
        Conversion(HAL, gdn, gdn).copy(slots, slots, 2)
