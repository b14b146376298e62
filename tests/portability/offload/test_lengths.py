"""After which lengths a request can go on, against a token by token oracle."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portability.offload.oracle import can_go_on
from statehal.errors import ArgumentError
from statehal.portability.offload import Need, Prefix, chunk_ends, longest_common, usable_lengths
from statehal.portability.store import block_key, block_keys
from statehal.spec import Attention, ConvRecurrent, Latent

NEEDS = st.one_of(
    st.just(Need("span")), st.just(Need("point")), st.integers(1, 30).map(lambda window: Need("span", window))
)


@settings(max_examples=400, derandomize=True, deadline=None)
@given(
    st.lists(NEEDS, min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 60),
    st.data(),
)
def test_usable_lengths_are_those_from_which_every_sub_pool_can_go_on(
    needs: list[Need], tokens: int, most: int, data: st.DataObject
) -> None:
    named = {f"s{i}": need for i, need in enumerate(needs)}
    count = most // tokens
    rows = st.lists(st.sampled_from((True, True, True, False)), min_size=count, max_size=count)
    there = {name: data.draw(rows) for name in named}
    expected = [
        length
        for length in range(1, most + 1)
        if length % tokens == 0 and all(can_go_on(need, there[name], tokens, length) for name, need in named.items())
    ]
    assert list(usable_lengths(named, there, tokens, most)) == expected


def test_what_lies_past_the_end_of_a_list_is_not_there() -> None:
    needs = {"full": Need("span"), "gdn": Need("point"), "one": Need("span", 1)}
    assert usable_lengths(needs, {"full": [True] * 5, "gdn": [True] * 3, "one": []}, 4, 100) == (4, 8, 12)
    assert usable_lengths({}, {}, 4, 100) == ()
    assert usable_lengths({"full": Need("span")}, {"full": [True]}, 4, -1) == ()


def test_the_need_of_a_spec() -> None:
    full = Attention("full", (0,), kv_heads=1, head_dim=4, dtype="float32")
    assert Need.of(full) == Need("span")
    assert Need.of(Attention("swa", (0,), 1, 4, "float32", window=7)) == Need("span", 7)
    assert Need.of(Latent("mla", (0,), 4, 4, "float32", window=9)) == Need("span", 9)
    assert Need.of(ConvRecurrent("gdn", (0,), 4, 4, "float32")) == Need("point")


def test_ranks_agree_on_the_longest_that_all_have_and_not_on_the_shortest_of_their_longest() -> None:
    assert longest_common([(4, 8, 16), (4, 12, 16), (4, 8, 12)]) == 4
    assert longest_common([(4, 8, 12), (8,), (8, 20)]) == 8
    assert longest_common([(8,), ()]) == longest_common([]) == 0


@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_chunks_end_on_the_grid_of_their_own_request(tokens: int) -> None:
    for start in range(12):
        for length in range(20):
            stop = start + length
            expected = [end for end in range(start + 1, stop + 1) if end % tokens == 0 or end == stop]
            assert list(chunk_ends(start, length, tokens)) == expected


def test_a_packed_batch_has_a_grid_for_each_request() -> None:
    """The second request begins at token 10 of the batch; its points are at its own tokens 8 and 16."""
    batch = [(0, 10), (5, 12)]
    assert [chunk_ends(start, length, 8) for start, length in batch] == [(8, 10), (8, 16, 17)]
    in_the_batch, taken = 0, []
    for number, (start, length) in enumerate(batch):
        taken += [(number, end - start) for end in chunk_ends(start, length, 8) if end % 8 == 0]
        in_the_batch += length
    assert taken == [(0, 8), (1, 3), (1, 11)], "ends of snapshots within each sequence, none at the batch's token 16"


@pytest.mark.parametrize("arguments", [(-1, 2, 4), (0, -2, 4), (0, 2, 0)])
def test_chunks_of_counts_that_make_no_sense(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ArgumentError, match=r"^chunk_ends\(.*\): expected counts of at least 0, and blocks of at lea"):
        chunk_ends(*arguments)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), st.integers(1, 7), st.data())
def test_a_prefix_that_grows_has_the_keys_of_its_tokens(tokens: list[int], size: int, data: st.DataObject) -> None:
    prefix = Prefix(object_tokens=size, adapter="a", salt=b"s")
    done = 0
    while done < len(tokens):
        step = data.draw(st.integers(1, len(tokens) - done))
        prefix.extend(tokens[done : done + step])
        done += step
        assert len(prefix) == done
    assert prefix.keys == block_keys(tokens, size, adapter="a", salt=b"s")


@pytest.mark.parametrize("kind", [list, tuple, bytes, bytearray, iter, lambda tokens: memoryview(bytes(tokens))])
def test_bytes_are_tokens_one_each(kind: Callable[[list[int]], Any]) -> None:
    """Of a model that reads bytes: eight of them are not one token of 64 bits."""
    tokens = list(range(65, 84))
    expected = block_keys(tokens, 8)
    prefix = Prefix(kind(tokens), object_tokens=8)
    assert (len(prefix), prefix.keys) == (19, expected)
    if kind is not iter:
        assert block_keys(kind(tokens), 8) == expected
        assert block_key(kind(tokens[:8])) == expected[0]


def test_a_prefix_refuses_what_are_no_tokens_and_stays_as_it_was() -> None:
    prefix = Prefix([1, 2, 3], object_tokens=2)
    keys = list(prefix.keys)
    for wrong in ([2**63], [1.5], ["a"], [None]):
        with pytest.raises(ArgumentError, match=r"^tokens of a prefix are not integers of 64 bits: "):
            prefix.extend([4, *wrong])
        assert (len(prefix), prefix.keys) == (3, keys)
    with pytest.raises(ArgumentError, match=r"^object_tokens=0 of a prefix: expected at least 1$"):
        Prefix(object_tokens=0)
