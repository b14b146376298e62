"""How many bytes of state a cache holds between two steps."""

from typing import Any

import torch

from statehal_transformers.compat import Cache
from statehal_transformers.host import PoolHost


def pool_bytes(host: PoolHost) -> int:
    """Bytes of the pages and slots that are in use."""
    return sum(host.pool[name].used_pages * host.pool[name].layout.page_bytes for name in host.pool)


def tensor_bytes(cache: Cache) -> int:
    """Bytes of the memory that the tensors of transformers' own cache keep, each counted once.

    A layer's tensor may be a part of a larger one: what it keeps from being freed is what counts.
    """
    memory: dict[int, int] = {}
    for layer in cache.layers:
        kept: list[Any] = [getattr(layer, name, None) for name in ("keys", "values")]
        for name in ("conv_states", "recurrent_states"):
            kept += getattr(layer, name, {}).values()
        for tensor in kept:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                memory[storage.data_ptr()] = storage.nbytes()
    return sum(memory.values())
