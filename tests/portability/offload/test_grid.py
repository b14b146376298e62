"""States of a packed batch are taken on each request's own grid, and are those of the request run alone."""

from collections.abc import Sequence

import torch

from portability.offload.scene import HeldStore
from statehal import ConvRecurrent, bind
from statehal.pool import Pages
from statehal.portability import Grouping
from statehal.portability.offload import Offloader, Prefix, RankPool, chunk_ends

N = 8
SPEC = ConvRecurrent("conv", (0, 2), 4, 4, "float32", sections=(4,), section_heads=(2,))
FIRST, SECOND = list(range(10)), list(range(100, 117))  # the second begins in the batch after 5 tokens of its own


def test_a_request_that_begins_off_the_grid_is_stored_at_its_own_block_ends() -> None:
    hal = bind("cpu", "reference", check=True)
    pool = hal.allocate(hal.plan([SPEC], tokens=1, requests=12))
    conv, sub = hal.conv(pool["conv"]), pool["conv"]
    rank = RankPool(hal, pool, grouping=Grouping.of([SPEC], object_tokens=N), model="m", revision="1")
    torch.manual_seed(0)
    inputs = {token: torch.randn(4) for token in FIRST + SECOND}
    for layer in SPEC.layers:
        conv.prepare(layer, torch.randn(4, 4))

    def run(requests: list[tuple[Pages, list[int], int]], points: Sequence[tuple[int, int, Pages]] = ()) -> None:
        """Prefill requests ``(slot, tokens, tokens read before)`` in one batch, with states saved at ``points``."""
        x = torch.stack([inputs[token] for _, tokens, _ in requests for token in tokens])
        ends = torch.tensor([0, *(len(tokens) for _, tokens, _ in requests)]).cumsum(0)
        slots = sub.kernel_ids(
            pool.families[0].spaces["pages"].assume(torch.tensor([s.ids[0] for s, _, _ in requests]))
        )
        had = torch.tensor([before > 0 for _, _, before in requests])
        saved = None
        if points:
            targets = torch.tensor([slot.ids[0] for _, _, slot in points])
            ids = sub.kernel_ids(pool.families[0].spaces["pages"].assume(targets))
            saved = torch.tensor([p[0] for p in points]), torch.tensor([p[1] for p in points]), ids
        for layer in SPEC.layers:
            conv.prefill(layer, x, ends, slots, had, snapshots=saved)
        conv.commit(slots, torch.ones(len(requests), dtype=torch.int64))

    store = HeldStore()
    with Offloader(store, rank, host_bytes=rank.block_bytes) as offload:

        def stored(prefix: Prefix, slot: Pages, stop: int) -> dict[str, bytes]:
            transfer = offload.store(prefix, slot, stop=stop)
            assert transfer.wait(60)
            assert all(transfer.results)
            refs = rank.shares["conv"].refs(prefix.keys[stop // N - 1])
            return {ref.part.id: store.values[store.name(ref)][-ref.part.nbytes :] for ref in refs}

        slots = [pool.alloc(1) for _ in range(2)]
        run([(slots[1], SECOND[:5], 0)])
        batch = [(slots[0], FIRST, 0), (slots[1], SECOND[5:], 5)]
        points = [
            (number, end - before, pool.alloc(1))
            for number, (_, tokens, before) in enumerate(batch)
            for end in chunk_ends(before, len(tokens), N)
            if end % N == 0
        ]
        assert [point[:2] for point in points] == [(0, 8), (1, 3), (1, 11)]
        run(batch, points)
        taken = [
            stored(rank.prefix(tokens), slot, stop)
            for (tokens, stop), (_, _, slot) in zip([(FIRST, 8), (SECOND, 8), (SECOND, 16)], points, strict=True)
        ]
        for number, (tokens, stop) in enumerate([(FIRST, 8), (SECOND, 8), (SECOND, 16)]):
            alone = pool.alloc(1)
            run([(alone, tokens[:stop], 0)])
            assert taken[number] == stored(rank.prefix(range(1000 * number, 1000 * number + stop)), alone, stop)
        assert offload.lookup(rank.prefix(SECOND)).lengths == (8, 16)
        assert offload.lookup(rank.prefix(FIRST)).lengths == (8,)
