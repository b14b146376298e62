"""What a store has of a prompt, and why it has not more."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from portability.offload.oracle import can_go_on
from portability.offload.scene import HeldStore, Host, N, host, offloader
from statehal.portability import Topology
from statehal.portability.offload import Lookup, Offloader, longest_common
from statehal.portability.store import Outcome, PartRef, Reason
from statehal.portability.store.outcome import DONE
from store.memory_store import Name

TOKENS = list(range(5 * N + 1))
MADE = host(tokens=80, slots=3)


def store_all(made: Host, store: HeldStore, points: Sequence[int] = (), tokens: list[int] = TOKENS) -> None:
    """Store every whole block of the tokens, and states at some of their ends."""
    pages, slot = made.pool.alloc(len(tokens)), made.pool.alloc(1, "gdn")
    prefix = made.rank.prefix(tokens)
    with offloader(store, made) as offload:
        assert offload.store(prefix, pages).wait(60)
        for point in points:
            assert offload.store(prefix, slot, stop=point).wait(60)
    made.pool.free([pages, slot])


def ask(made: Host, store: HeldStore, tokens: int = len(TOKENS)) -> Lookup:
    with offloader(store, made) as offload:
        return offload.lookup(made.rank.prefix(TOKENS[:tokens]))


STORED = HeldStore()
store_all(MADE, STORED, [N * (i + 1) for i in range(5)])


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.sets(st.tuples(st.sampled_from(["full", "swa", "gdn"]), st.integers(0, 4), st.integers(0, 99)), max_size=6),
       st.integers(0, len(TOKENS)))  # fmt: skip
def test_a_prompt_is_found_to_where_every_sub_pool_has_all_parts_of_what_it_needs(
    lost: set[tuple[str, int, int]], length: int
) -> None:
    keys = MADE.rank.prefix(TOKENS).keys
    values: dict[Name, bytes] = dict(STORED.values)
    for name, number, part in lost:
        refs = MADE.rank.shares[name].refs(keys[number])
        ref = refs[part % len(refs)]
        values.pop((ref.namespace.digest, ref.key, ref.part.id), None)
    there = {name: [all((name, number) != one[:2] for one in lost) for number in range(5)] for name in MADE.rank.needs}
    expected = tuple(
        p
        for p in range(N, length, N)  # the last token is computed
        if all(can_go_on(need, there[name], N, p) for name, need in MADE.rank.needs.items())
    )
    found = ask(MADE, HeldStore(values), length)
    assert found.lengths == expected
    assert found.longest == max(expected, default=0)
    assert found.most == max(0, length - 1) // N * N
    assert (not found.missing) == (found.longest == found.most)
    for name, outcome in found.missing.items():
        assert not can_go_on(MADE.rank.needs[name], there[name], N, found.longest + N)
        assert outcome.reason is Reason.ABSENT


def test_a_restored_prefix_with_a_tail_of_one_token_and_a_prompt_of_exactly_what_is_stored() -> None:
    assert ask(MADE, STORED, 3 * N + 1).lengths == (N, 2 * N, 3 * N), "one token is left to compute"
    assert ask(MADE, STORED, 3 * N).lengths == (N, 2 * N), "the last token is computed, and so is its block"
    store = HeldStore()
    store_all(MADE, store, [3 * N])
    assert ask(MADE, store, 3 * N + 1).longest == 3 * N
    exact = ask(MADE, store, 3 * N)
    assert (exact.longest, exact.most) == (0, 2 * N), "a state after the last token is of no use for computing it"
    assert ask(MADE, store, N).most == ask(MADE, store, 0).most == 0


def test_a_hybrid_whose_store_never_hits_says_why() -> None:
    store = HeldStore()
    store_all(MADE, store)
    with offloader(store, MADE) as offload:
        for _ in range(3):
            found = offload.lookup(MADE.rank.prefix(TOKENS))
            assert (found.longest, found.reach) == (0, {"full": 5 * N, "swa": 5 * N, "gdn": 0})
            assert {name: one.reason for name, one in found.missing.items()} == {"gdn": Reason.ABSENT}
        counts = offload.counts()
        assert counts["lookup"] == {"miss": 3}
        assert counts["lookup_missing"] == {"gdn absent": 3}
        assert counts["lookup_tokens"] == {"asked": 3 * len(TOKENS), "found": 0}


def test_lookups_are_counted_by_how_much_they_found() -> None:
    store = HeldStore()
    store_all(MADE, store, [2 * N, 5 * N])
    with offloader(store, MADE) as offload:
        for tokens in (5 * N + 1, 4 * N, N + 1, 3):
            offload.lookup(MADE.rank.prefix(TOKENS[:tokens]))
        assert offload.counts()["lookup"] == {"hit": 1, "partial": 1, "miss": 1, "short": 1}
        assert offload.counts()["lookup_missing"] == {"gdn absent": 2}
        assert offload.counts()["lookup_tokens"]["found"] == 7 * N


def test_a_store_is_not_asked_for_what_is_of_no_use() -> None:
    store, tokens = HeldStore(), list(range(100 * N + 1))
    store_all(MADE, store, [N], tokens[: 2 * N])
    asked: list[PartRef] = []

    def note(ref: PartRef) -> Outcome | None:
        asked.append(ref)
        return None

    store.faults["exists"] = note
    with offloader(store, MADE) as offload:
        assert offload.lookup(MADE.rank.prefix(tokens)).lengths == (N,)
    keys = MADE.rank.prefix(tokens).keys
    blocks = {name: {keys.index(ref.key) for ref in asked if ref.namespace == share.namespace}
              for name, share in MADE.rank.shares.items()}  # fmt: skip
    assert blocks == {"full": set(range(32)), "swa": {0, 1}, "gdn": {0, 1}}


def test_other_adapters_salts_models_and_revisions_find_nothing() -> None:
    with offloader(STORED, MADE) as offload:
        assert offload.lookup(MADE.rank.prefix(TOKENS)).longest == 5 * N
        for other in (MADE.rank.prefix(TOKENS, adapter="lora"), MADE.rank.prefix(TOKENS, salt=b"x")):
            assert offload.lookup(other).longest == 0
    assert ask(host(object_tokens=N // 2), STORED).longest == 0


def test_ranks_of_which_one_lacks_a_part_agree_on_what_all_have() -> None:
    store = HeldStore()
    store_all(MADE, store, [N * (i + 1) for i in range(5)])
    ranks = [host(topology=Topology(tensor=2), number=number) for number in range(2)]
    keys = MADE.rank.prefix(TOKENS).keys
    for rank, name, number in ((0, "gdn", 4), (1, "gdn", 2), (1, "gdn", 3)):
        mine = {ref.part.id for ref in ranks[rank].rank.shares[name].refs(keys[number])}
        others = {ref.part.id for ref in ranks[1 - rank].rank.shares[name].refs(keys[number])}
        store.values.pop((MADE.rank.shares[name].namespace.digest, keys[number], min(mine - others)))
    answers = [ask(one, store).lengths for one in ranks]
    assert answers == [(N, 2 * N, 3 * N, 4 * N), (N, 2 * N, 5 * N)]
    assert longest_common(answers) == 2 * N, "and not 4 blocks, the shorter of the longest"


def test_a_store_that_raises_at_a_lookup_is_a_miss() -> None:
    store = HeldStore(dict(STORED.values))

    def fault(ref: PartRef) -> Outcome | None:
        raise ConnectionError("no route")

    store.faults["exists"] = fault
    found = ask(MADE, store)
    assert found.longest == 0
    assert found.missing["full"].reason is Reason.FAILED
    assert found.missing["full"].detail.endswith("ConnectionError: no route")
    store.exists = lambda refs: [DONE] * (len(refs) - 1)  # type: ignore[method-assign]
    assert ask(MADE, store).longest == 0, "who answers for too few is believed nothing"


def test_a_pool_without_full_attention_is_asked_for_all_of_its_points() -> None:
    made = host(["gdn"])
    store = HeldStore()
    slot = made.pool.alloc(1, "gdn")
    prefix = made.rank.prefix(TOKENS)
    with Offloader(store, made.rank, host_bytes=made.rank.block_bytes) as offload:
        for point in (2 * N, 4 * N):
            assert offload.store(prefix, slot, stop=point).wait(60)
        assert offload.lookup(prefix).lengths == (2 * N, 4 * N)
