"""One flipped byte in a page that the next step reads."""

from dataclasses import dataclass

import torch

from statehal_transformers.cache import PooledCache
from statehal_transformers.host import PoolHost

AFTER_STEP = 2


@dataclass(frozen=True)
class Fault:
    """Where a byte was flipped: ``offset`` in the pool's buffer, in a value row of that layer and token."""

    subpool: str
    layer: int
    token: int
    offset: int
    before: int
    after: int


def flip_byte(host: PoolHost, cache: PooledCache) -> Fault:
    """Invert the byte with sign and exponent of one value of the first sequence's newest token.

    Attention reads that token in the next step at the latest, whatever its window.
    """
    group, pages = host.groups[0], cache.pages[0]
    layer, token = group.spec.layers[0], cache.get_seq_length() - 1
    kernel = group.subpool.kernel_ids(pages.token_ids(token, token + 1))
    row = int(kernel.of(group.v.steps.form)[0])
    values = group.subpool.view("v", layer, "row")[row, 0]
    size = values.element_size()
    place = int(values.abs().float().argmax())
    byte = values.view(torch.uint8)[place * size + size - 1]  # little-endian: the last byte of an element
    before = int(byte)
    byte.bitwise_xor_(0xFF)
    return Fault(group.name, layer, token, byte.data_ptr() - host.pool.buffer.data_ptr(), before, int(byte))
