"""One flipped byte in a page that the next step reads."""

from dataclasses import dataclass

import torch

from statehal_transformers.cache import PooledCache
from statehal_transformers.groups import LayerGroup
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
    """Invert the byte with sign and exponent of one value of the first sequence.

    It is of its newest token, which attention reads in the next step at the latest, whatever its window; or, where a
    model keeps no tokens, of its recurrent state.
    """
    group = host.groups[0] if host.groups else host.conv_groups[0]
    layer, token = group.spec.layers[0], cache.length - 1
    if isinstance(group, LayerGroup):
        ids = group.subpool.kernel_ids(cache.pages[0].token_ids(token, token + 1))
        values = group.views[layer][-1][int(ids.of(group.forms[-1])), 0]
    else:
        page = int(group.subpool.physical_ids(cache.slots[0].page_ids()).tensor[0])
        values = group.subpool.view("state", layer, "page")[page, 0].flatten()
    width = values.element_size()
    place = int(values.abs().float().argmax())
    byte = values.view(torch.uint8)[place * width + width - 1]  # little-endian: the last byte of an element
    before = int(byte)
    byte.bitwise_xor_(0xFF)
    return Fault(group.name, layer, token, byte.data_ptr() - host.pool.buffer.data_ptr(), before, int(byte))
