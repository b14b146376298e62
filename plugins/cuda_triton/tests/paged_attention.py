"""Attention over paged keys and values as engines call it: blocks, one table of them, lengths; it knows torch alone.

``queries`` ``[requests, heads, newest, dim]`` are those of each request's newest tokens, blocks are ``[n_blocks,
page_size, kv_heads, dim]``, ``table`` is ``[requests, most_pages]`` with 0 where a request has no page, ``lengths`` is
``[requests]``, and a token sees itself and the ``window - 1`` before it, or all. Results are of the queries' shape.
"""

import torch
from torch import Tensor
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

FOREVER = 2**31
"""The window of a layer that sees all."""


def dense(queries: Tensor, keys: list[Tensor], values: list[Tensor], window: int = FOREVER) -> Tensor:
    """The definition, in float64, over the keys and values ``[length, kv_heads, dim]`` of each request."""
    result = torch.zeros(queries.shape, dtype=torch.float64)
    _, heads, newest, dim = queries.shape
    for b, (k, v) in enumerate(zip(keys, values, strict=True)):
        for h in range(heads):
            head = h * k.shape[1] // heads
            for i in range(newest):
                last = k.shape[0] - newest + i
                seen = slice(max(0, last - window + 1), last + 1)
                scores = k[seen, head].double() @ queries[b, h, i].double() / dim**0.5
                result[b, h, i] = scores.softmax(0) @ v[seen, head].double()
    return result


def plain(
    queries: Tensor, k_blocks: Tensor, v_blocks: Tensor, table: Tensor, lengths: Tensor, window: int = FOREVER
) -> Tensor:
    """Gather the blocks that the table names, then attend to them."""
    group = queries.shape[1] // k_blocks.shape[2]
    k, v = (blocks[table].flatten(1, 2).repeat_interleave(group, 2) for blocks in (k_blocks, v_blocks))
    last = lengths[:, None] - queries.shape[2] + torch.arange(queries.shape[2])
    behind = last[:, None, :, None] - torch.arange(k.shape[1])
    scores = torch.einsum("bhqd,bkhd->bhqk", queries, k) / queries.shape[-1] ** 0.5
    weights = scores.masked_fill((behind < 0) | (behind >= window), -torch.inf).softmax(-1)
    return torch.einsum("bhqk,bkhd->bhqd", weights, v)


def flex(
    queries: Tensor, k_blocks: Tensor, v_blocks: Tensor, table: Tensor, lengths: Tensor, window: int = FOREVER
) -> Tensor:
    """FlexAttention over all blocks; torch's ``PagedAttention``, told the table, maps blocks back to requests."""
    (requests, _, newest, _), (n_blocks, page_size, *_) = queries.shape, k_blocks.shape
    paged = PagedAttention(n_blocks, page_size, requests, device=str(queries.device))
    most = table.shape[1]
    paged.page_table[:, :most] = table
    for b, entries in enumerate(table):
        mapped = entries.nonzero()[:, 0]
        paged.physical_to_logical[b, entries[mapped]] = mapped

    def mask(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        behind = lengths[b] - newest + query - key
        return (behind >= 0) & (behind < window)

    in_requests = create_block_mask(
        mask, requests, None, newest, most * page_size, device=str(queries.device), BLOCK_SIZE=(newest, page_size)
    )
    in_blocks = paged.convert_logical_block_mask(in_requests, kv_len=lengths)
    k, v = (
        blocks.view(n_blocks * page_size, *blocks.shape[2:]).transpose(0, 1)[None].expand(requests, -1, -1, -1)
        for blocks in (k_blocks, v_blocks)
    )
    result = flex_attention(queries, k, v, block_mask=in_blocks, enable_gqa=True)
    assert isinstance(result, Tensor)
    return result
