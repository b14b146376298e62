"""What spawned processes run; imported by name in the child."""

import pickle

import torch

from pool.build import full, make, swa
from statehal.errors import StatehalError


def use_a_pool(count: int) -> list[int]:
    """Pools work in a spawned process."""
    pool = make(full(), swa())
    pages = pool.alloc(count)
    ids = pool["full"].kernel_ids(pages.token_ids()).tensor
    pool["full"].view("k", 0)[ids] = torch.arange(count, dtype=torch.float32).reshape(-1, 1, 1).expand(-1, 1, 4)
    pool.check()
    return [int(row[0, 0]) for row in pool["full"].view("k", 0)[ids]]


def inspect(data: bytes) -> tuple[str, list[int], str]:
    """Unpickle ids of the parent's pool, use them with a pool of this process, and say what happened."""
    ids = pickle.loads(data)
    pool = make(full(), swa())
    try:
        pool["full"].space(ids.space.key.kind, ids.space.key.unit).accept(ids, "a read")
        error = ""
    except StatehalError as raised:
        error = f"{type(raised).__name__}: {raised}"
    return str(ids.space), ids.tensors[0].tolist(), error
