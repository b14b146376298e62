"""Ranks, each in a process of its own: they fill their pools and store them, or restore them from what others stored.

``python -m portability.worker ACTION DIRECTORY JSON`` with topology, layouts, page size and backend in JSON. Its own
process only loads torch, which takes longer than all the rest, and forks the ranks before anything is allocated.
"""

import json
import multiprocessing
import sys
from typing import Any

import torch

from portability.images import fill_tokens, make_pool, physical, raw, scattered, slot_bytes, token_bytes
from portability.models import BY_NAME, Model
from statehal import Binding, bind
from statehal.pool import StatePool
from statehal.portability import CanonicalState, Grouping, RankSubPool, Topology, shard, writer
from statehal.portability.store import BlockStore, FileStore, Namespace, PartRef, block_keys

TOKENS = 64
OBJECTS = 2
KEYS = block_keys(list(range(OBJECTS * TOKENS)), TOKENS)


class Rank:
    """A rank's pool of one model, and what it stores and reads."""

    def __init__(self, hal: Binding, model: Model, topology: Topology, rank: int, layout: str, page_size: int) -> None:
        self.model, self.topology, self.rank = model, topology, rank
        self.pool: StatePool = make_pool(
            shard([model.spec], topology, rank), layout, page_size, tokens=4 * TOKENS, hal=hal
        )
        self.sub = self.pool[model.spec.name]
        grouping = Grouping.of([model.spec], object_tokens=TOKENS)
        held = RankSubPool(self.sub, [model.spec], topology, rank, grouping)
        assert held.verdict.certified, held.verdict
        self.state = CanonicalState(hal, held)
        self.namespace = Namespace.of(held.spec, model="m", revision="1", grouping=held.grouping, exact=held.exact)

    def store(self, blocks: BlockStore) -> None:
        """Fill the pool, and put the parts whose turn it is."""
        if self.model.spec.kind == "tokens":
            pages = scattered(self.pool, self.sub.name, OBJECTS * TOKENS)
            fill_tokens(self.sub, self.model, pages, OBJECTS * TOKENS, self.topology, self.rank)
        else:
            pages = self.pool.alloc(OBJECTS, self.sub.name)
            self.pool.flush()
            image = bytearray(raw(self.sub.buffer))
            for point, slot in enumerate(physical(self.sub, pages)):
                for at, value in slot_bytes(self.sub, self.model, slot, 0, self.topology, self.rank, point):
                    image[at] = value
            self.sub.buffer.copy_(torch.frombuffer(image, dtype=torch.uint8))
        for number, key in enumerate(KEYS):
            where = pages if self.model.spec.kind == "tokens" else pages[number]
            buffer = self.state.gather(where, number * TOKENS)
            for part, at in zip(self.state.object.parts, self.state.object.offsets, strict=True):
                if writer(part, number, [self.model.spec], self.topology) == self.rank:
                    (done,) = blocks.put([(PartRef(self.namespace, key, part), buffer[at : at + part.nbytes])])
                    assert done, done

    def load(self, blocks: BlockStore) -> None:
        """Restore both objects, and hold every byte of them against the model."""
        objects = []
        for key in KEYS:
            buffer = torch.full((self.state.object.nbytes,), 0xEE, dtype=torch.uint8)
            parts = zip(self.state.object.parts, self.state.object.offsets, strict=True)
            refs = [(PartRef(self.namespace, key, part), buffer[at : at + part.nbytes]) for part, at in parts]
            missing = [outcome for outcome in blocks.get(refs) if not outcome]
            assert not missing, missing
            objects.append(buffer)
        if self.model.spec.kind == "tokens":
            pages = scattered(self.pool, self.sub.name, OBJECTS * TOKENS)
            self.sub.buffer.fill_(0xDD)
            self.state.restore(pages, objects)
            wanted = token_bytes(self.sub, self.model, pages, range(OBJECTS * TOKENS), self.topology, self.rank)
            self.compare(dict(wanted))
            return
        pages = self.pool.alloc(OBJECTS, self.sub.name)
        for point, slot in enumerate(physical(self.sub, pages)):
            self.state.restore(pages[point], objects[point : point + 1])
            self.compare(dict(slot_bytes(self.sub, self.model, slot, 0, self.topology, self.rank, point)))

    def compare(self, wanted: dict[int, int]) -> None:
        image = raw(self.sub.buffer)
        wrong = [at for at, value in wanted.items() if image[at] != value]
        assert wanted
        assert not wrong, f"{self.model}: {len(wrong)} of {len(wanted)} bytes differ, first at {wrong[0]}"


def run(action: str, directory: str, given: dict[str, Any], topology: Topology, rank: int) -> None:
    """What one rank does."""
    blocks, hal = FileStore(directory), bind("cpu", given["backend"])
    for name, layout in given["layouts"].items():
        model = BY_NAME[name]
        if shard([model.spec], topology, rank):  # a pipeline stage may have no layers of it
            one = Rank(hal, model, topology, rank, layout, given["page_size"])
            (one.store if action == "store" else one.load)(blocks)


def main() -> int:
    """Start the ranks, and say whether all of them ended well."""
    action, directory, options = sys.argv[1:]
    given = json.loads(options)
    topology = Topology(**given["topology"])
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=run, args=(action, directory, given, topology, rank))
        for rank in range(topology.world_size)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return int(any(rank.exitcode for rank in ranks))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
