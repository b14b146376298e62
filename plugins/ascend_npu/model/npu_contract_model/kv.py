"""Stores of K and V rows into dense pages, as CANN's operators do them."""

import torch
from torch import Tensor

from npu_contract_model import rows


def norm(new: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Store ``new`` ``[tokens, *row]`` into ``cache`` ``[pages, page_size, *row]`` at ``page * page_size + place``.

    Raises:
        ValueError: shapes, dtypes or strides that the operators do not take.
        IndexError: a slot outside of the cache: what a negative one does differs by operator and device.
    """
    _demand(new, cache, slots, cache.shape[0] * cache.shape[1])
    if list(new.shape[1:]) != list(cache.shape[2:]):
        raise ValueError(f"rows {list(new.shape[1:])} do not fit a cache {list(cache.shape)}")
    scatter(new, cache.view(-1, *cache.shape[2:]), slots[:, None])


def fractal(new: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Store ``new`` ``[tokens, heads, dim]`` into ``cache`` ``[pages, heads*dim/x, page_size, x]`` of the NZ format.

    Element d of a row, counted over heads, lies at ``page*ps*D + (d//x)*ps*x + place*x + d%x``.
    """
    pages, pieces, size, x = cache.shape
    if x * cache.element_size() != 32:
        raise ValueError(f"a fractal of {x} elements of {cache.dtype}: expected 32 bytes")
    _demand(new, cache, slots, pages * size)
    width = pieces * x
    if new.shape[1:].numel() != width:
        raise ValueError(f"rows of {new.shape[1:].numel()} elements do not fit a cache {list(cache.shape)}")
    flat, given = cache.view(-1), new.view(new.shape[0], width)
    for token in range(new.shape[0]):
        page, place = divmod(int(slots[token]), size)
        for d in range(width):
            flat[page * size * width + (d // x) * size * x + place * x + d % x] = given[token, d]


def scatter(updates: Tensor, cache: Tensor, indices: Tensor) -> None:
    """``cache[indices[i, 0]] = updates[i]``, in order."""
    if indices.dim() != 2 or indices.shape[1] != 1 or indices.shape[0] != updates.shape[0]:
        raise ValueError(f"indices {list(indices.shape)}: expected [{updates.shape[0]}, 1]")
    if cache.dtype != updates.dtype or list(cache.shape[1:]) != list(updates.shape[1:]):
        raise ValueError(f"updates {updates.dtype} {list(updates.shape)} do not fit {cache.dtype} {list(cache.shape)}")
    held = rows.of("cache", cache)
    for token in range(updates.shape[0]):
        at = int(indices[token, 0])
        if not 0 <= at < cache.shape[0]:
            raise IndexError(f"slot {at} is outside of the {cache.shape[0]} rows of the cache")
        held.tensor[at] = updates[token]


def _demand(new: Tensor, cache: Tensor, slots: Tensor, count: int) -> None:
    if slots.dtype != torch.int32 or list(slots.shape) != [new.shape[0]]:
        raise ValueError(f"slots {slots.dtype} {list(slots.shape)}: expected int32 [{new.shape[0]}]")
    if new.dtype != cache.dtype or not (new.is_contiguous() and cache.is_contiguous()):
        raise ValueError("rows and cache have to be contiguous, and of one dtype")
    for slot in slots.tolist():
        if not 0 <= slot < count:
            raise IndexError(f"slot {slot} is outside of the {count} slots of the cache")
