"""Writers that are given virtual ids translate at every call; for spaces that nothing leads from none is made."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import statehal.reference
from binding.binding_fakes import Backend, Override, Recorder, allocate, bind
from statehal import Attention, Binding, ConvRecurrent, Latent
from statehal.errors import ArgumentError, WrongIdSpace
from statehal.hookspecs import KVWriteRequest
from statehal.pool import StatePool
from statehal.testing.oracles.bytes import address

FULL = Attention("full", (0, 2), 1, 8, "float32")
SWA = Attention("swa", (1, 3), 1, 8, "float32", window=8)
TOKENS = 16


def made(**options: Any) -> tuple[Binding, StatePool, Any, Any]:
    """A binding, a pool of both, a handle on 16 tokens in it whose pages have other numbers in each, and the writer."""
    hal = bind(**options)
    pool = allocate(hal, SWA, FULL)
    hole = pool.alloc(4, "full")
    pages = pool.alloc(TOKENS)
    pool.free(hole)
    return hal, pool, pages, hal.kv(pool["swa"], ids=pool["swa"].space("virtual"))


def at(pool: StatePool, pages: Any, token: int, field: str, layer: int) -> int:
    """The first byte of a token's row, from the layout's integers and the page that the pool's own books name."""
    page, place = divmod(token, 4)
    return address(pool["swa"].layout.field(field), layer, pool["swa"].member.table[pages.ids[page]], place, (0, 0))


def row(pool: StatePool, start: int) -> list[float]:
    held: list[float] = pool.buffer[start : start + 32].view(torch.float32).tolist()
    return held


@given(
    st.lists(
        st.integers(-1, TOKENS - 1), min_size=1, max_size=6, unique_by=lambda token: token if token >= 0 else object()
    )
)
def test_rows_lie_where_the_books_say(tokens: list[int]) -> None:
    _, pool, pages, writer = made()
    ids = pages.token_ids()
    picked = ids.tensor[torch.tensor(tokens)].where(torch.tensor(tokens) >= 0, -1)
    rows = torch.arange(1, 8 * len(tokens) + 1, dtype=torch.float32).reshape(-1, 1, 8)
    pool.flush()
    expected = pool.buffer.clone()
    for n, token in enumerate(tokens):
        if token >= 0:
            for field, values in (("k", rows[n]), ("v", -rows[n])):
                start = at(pool, pages, token, field, 3)
                expected[start : start + 32] = values.reshape(-1).view(torch.uint8)
    writer.write(3, pool["swa"].space("virtual").assume(picked), rows, -rows)
    assert torch.equal(pool.buffer, expected)


def test_it_follows_compactions_and_evictions() -> None:
    """The same object of ids, before and after: nothing that was translated is kept."""
    hal = bind()
    pool = allocate(hal, SWA, Attention("full", (0, 2, *range(4, 10)), 1, 8, "float32"))  # four times as big a page
    writer: Any = hal.kv(pool["swa"], ids=pool["swa"].space("virtual"))
    first, *others, last = [pool.alloc(4, "swa") for _ in range(8)]  # in two slabs
    both, ids, rows = (first, last), (first.token_ids(), last.token_ids()), torch.ones(4, 1, 8)

    def places() -> list[int]:
        return [at(pool, pages, token, "k", 1) for pages in both for token in range(4)]

    def write(value: float) -> None:
        for one in ids:
            writer.write(1, one, value * rows, value * rows)

    write(1)
    before = places()
    pool["swa"].free(others)
    assert pool.compact(100).moves
    assert places() != before
    write(2)
    assert [row(pool, place) for place in places()] == [[2.0] * 8] * 8
    assert all(row(pool, place) != [2.0] * 8 for place in set(before) - set(places()))
    pool["swa"].free(both)
    pool.flush()
    image = pool.buffer.clone()
    write(3)  # nobody's ids: padding
    assert torch.equal(pool.buffer, image)


def test_every_method_translates() -> None:
    _, pool, pages, writer = made()
    ids, rows = pages.token_ids(), torch.arange(1.0, 33.0).reshape(4, 1, 8)
    out = writer.rope_write(1, ids[:4], rows, rows, rows, torch.zeros(4, dtype=torch.int64), torch.ones(1, 8))
    assert out.shape == rows.shape
    assert row(pool, at(pool, pages, 3, "v", 1)) == rows[3, 0].tolist()
    writer.move(ids[8:12], ids[:4])
    assert row(pool, at(pool, pages, 11, "v", 1)) == rows[3, 0].tolist()
    hal = bind()
    pool = allocate(hal, Latent("swa", (1,), 4, 4, "float32", window=8))  # type: ignore[arg-type]
    pages = pool.alloc(4)
    latent = hal.kv(pool["swa"], ids=pool["swa"].space("virtual"))
    latent.write_latent(1, pages.token_ids(), rows[:, 0, :4], rows[:, 0, 4:])  # type: ignore[arg-type]
    assert row(pool, at(pool, pages, 2, "latent", 1)) == rows[2, 0].tolist()


@pytest.mark.parametrize("method", ["write", "move"])
def test_kernel_ids_are_refused_where_virtual_ones_were_said(method: str) -> None:
    _, pool, pages, writer = made()
    virtual, rows = pages.token_ids(), torch.ones(TOKENS, 1, 8)
    own = pool["swa"].kernel_ids(virtual)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: writer.write(1, own, rows, rows),
        "move": lambda: writer.move(virtual, own),
    }
    pool.flush()
    before = pool.buffer.clone()
    wanted = (
        rf"^{method} .*'swa' takes virtual tokens of 'tokens' in .* but was given kernel tokens of 'swa'.*token_ids"
    )
    with pytest.raises(WrongIdSpace, match=wanted):
        calls[method]()
    assert torch.equal(pool.buffer, before)


def test_checking_sees_what_is_translated() -> None:
    _, _, pages, writer = made(check=True)
    ids = pages.token_ids()
    with pytest.raises(ArgumentError, match=r"write to layer 1 of 'swa': ids .* token"):
        writer.write(1, ids[torch.tensor([2, 2])], torch.ones(2, 1, 8), torch.ones(2, 1, 8))


def test_compile_safe_forms_are_translated_too_and_no_graph_holds_the_translation() -> None:
    _, pool, pages, writer = made(compile_safe=True)
    ids, rows = pages.token_ids(), torch.ones(TOKENS, 1, 8)
    writer.write(1, ids, rows, rows)
    assert row(pool, at(pool, pages, 5, "k", 1)) == [1.0] * 8

    def step(rows: torch.Tensor) -> torch.Tensor:
        writer.write(1, ids, rows, rows)
        return rows * 2

    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="write by virtual ids cannot be part of a graph"):
        torch.compile(step, backend="eager", fullgraph=True)(rows)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(step, backend="eager")(3 * rows), 6 * rows)
    assert row(pool, at(pool, pages, 5, "k", 1)) == [3.0] * 8
    torch._dynamo.reset()


def test_flags_hold_for_both_steps() -> None:
    plugin = Override(memory=Recorder("site", "translate"))  # claims nothing
    hal = bind({"site": plugin})
    pool = allocate(hal, SWA, FULL)
    assert hal.kv(pool["swa"]).host_sync_free
    assert not hal.kv(pool["swa"], ids=pool["swa"].space("virtual")).host_sync_free


WRONG: dict[str, Callable[[StatePool, StatePool], Any]] = {
    "kernel tokens of 'full'": lambda pool, other: pool["full"].space("kernel"),
    "kernel pages of 'swa'": lambda pool, other: pool["swa"].space("kernel", "pages"),
    "physical tokens of 'swa'": lambda pool, other: pool["swa"].space("physical"),
    "virtual pages of 'tokens'": lambda pool, other: pool["swa"].space("virtual", "pages"),
    "virtual tokens of 'tokens'": lambda pool, other: other["swa"].space("virtual"),
    "virtual pages of 'slots'": lambda pool, other: pool["conv"].space("virtual", "pages"),
}


@pytest.mark.parametrize("space", WRONG)
def test_spaces_that_nothing_leads_from_are_refused_when_binding(space: str) -> None:
    """Also where a plugin would make a writer for any ids: the others are asked, too."""
    anything = Backend("chip", kv=Recorder("chip", "write"))
    for hal in (bind(), bind({"chip": anything})):
        pool, other = (allocate(hal, SWA, FULL, ConvRecurrent("conv", (5,), 3, 4, "float32")) for _ in range(2))
        wanted = (
            rf"^a KV writer of 'swa', which keeps a sliding window of 8, takes kernel tokens of .* given {space} in"
        )
        with pytest.raises(WrongIdSpace, match=wanted) as caught:
            hal.kv(pool["swa"], ids=WRONG[space](pool, other))
        assert str(caught.value).endswith("would be read or written (fix: pool['swa'].kernel_ids(virtual))")
    assert anything.requests


@pytest.mark.parametrize("name", ["swa", "full"])
def test_the_hook_refuses_by_itself(name: str) -> None:
    pool = allocate(bind(), SWA, FULL)
    other = {"swa": "full", "full": "swa"}[name]
    for space in (pool[other].space("kernel"), pool[name].space("virtual")):
        with pytest.raises(WrongIdSpace, match=f"^a KV writer of {name!r}.* takes kernel tokens of {name!r}"):
            statehal.reference.statehal_fused_kv_write(KVWriteRequest(pool[name], "cpu", space))
    own = pool[name].space("kernel")
    assert statehal.reference.statehal_fused_kv_write(KVWriteRequest(pool[name], "cpu", own)) is not None


def test_its_own_space_changes_nothing() -> None:
    hal, pool, _, _ = made()
    writer = hal.kv(pool["swa"], ids=pool["swa"].space("kernel"))
    assert type(writer.write.__self__).__name__ == "ReferenceKVWriter"  # type: ignore[attr-defined]
    assert not hal.describe(pool, {"swa": pool["swa"].space("kernel")}).translated


def test_describe_says_what_is_composed() -> None:
    plugins = {
        "chip": Backend("chip", kv=Recorder("chip", "write")),
        "site": Override(memory=Recorder("site", "translate")),
    }
    hal = bind(plugins)
    pool = allocate(hal, SWA, FULL)
    found = hal.describe(pool, {"swa": pool["swa"].space("virtual")})
    assert found.translated == {"swa: kv": "site"}
    assert found.methods["swa: kv.write"] == "chip"
    assert "swa: kv.move" in found.fallbacks
    lines = str(found).splitlines()
    assert "  swa: kv.write: translate by site, then by chip" in lines
    assert "  swa: kv.move: translate by site, then by reference" in lines
    assert "  full: kv.write: chip" in lines
    with pytest.raises(
        ArgumentError, match=r"^ids are given for \['window'\]: expected sub-pools of tokens, of \['swa', 'full'\]$"
    ):
        hal.describe(pool, {"window": pool["swa"].space("virtual")})
    with pytest.raises(
        ArgumentError, match=r"^ids is a Tensor: expected a space, such as pool\['swa'\].space\('virtual'\)$"
    ):
        hal.kv(pool["swa"], ids=torch.arange(4))  # type: ignore[arg-type]
