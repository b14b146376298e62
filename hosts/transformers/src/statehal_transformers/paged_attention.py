"""Attention that reads keys and values where they lie in the pool, a few hundred tokens at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from statehal.errors import Unsupported

if TYPE_CHECKING:
    from statehal_transformers.groups import GroupIds, LayerGroup

NAME = "statehal_pages"
"""What transformers calls this attention, in ``config._attn_implementation``."""
CHUNK = 256
"""Tokens of every sequence that are read at a time."""


@dataclass(frozen=True)
class PooledRows:
    """Stands for a layer's keys and values in the model's code, which hands it to ``attend``; it is no tensor.

    Attributes:
        ids: of the forward pass.
        tokens: newest tokens that attention sees; others are kept for a ``crop``.
    """

    group: "LayerGroup"
    layer: int
    ids: "GroupIds"
    tokens: int

    def read(self, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens ``start`` to ``stop`` of those that attention sees, ``[batch, heads, tokens, dim]`` each."""
        skipped = self.ids.tokens - self.tokens
        return self.group.load(self.layer, self.ids, skipped + start, skipped + stop)

    def __getattr__(self, name: str) -> Any:
        raise self._not_read()

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._not_read()

    @staticmethod
    def _not_read() -> Unsupported:
        return Unsupported(
            "the model computes with its keys and values between cache and attention, so that attention cannot read "
            "them from the pool (fix: run the model without reading_pages)"
        )


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: Any,
    value: Any,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention in float32, whose softmax is carried from chunk to chunk of the rows.

    Equal to attention over gathered tensors but for the order of its sums (Milakov and Gimelshein, "Online normalizer
    calculation for softmax", 2018).

    Args:
        module: the model's attention layer.
        query: ``[batch, heads, tokens, head_dim]``.
        key, value: the ``PooledRows`` that the cache returned.
        attention_mask: added to the scores, ``[batch, 1, tokens, visible tokens]``.
        scaling: of the scores; ``head_dim ** -0.5`` if left out.
        softcap: scores are ``softcap * tanh(scores / softcap)``.
        s_aux: attention sinks ``[heads]``: a score of every head that has no value.

    Returns:
        ``[batch, tokens, heads, v_head_dim]``.
    """
    if not isinstance(key, PooledRows) or not isinstance(value, PooledRows):
        raise Unsupported(
            f"attention {NAME!r} reads a pool, and was given tensors (fix: pass a cache of PoolHost.new_cache())"
        )
    group = key.group
    batch, heads, tokens, width = query.shape
    scale = width**-0.5 if scaling is None else scaling
    q = query.float().view(batch, group.heads, heads // group.heads, tokens, width) * scale
    most = q.new_full((*q.shape[:-1], 1), float("-inf"))
    if s_aux is not None:
        most = s_aux.float().view(1, group.heads, -1, 1, 1).expand(most.shape)
    total = torch.ones_like(most) if s_aux is not None else torch.zeros_like(most)
    result = q.new_zeros((*q.shape[:-1], group.v_dim))
    for start in range(0, key.tokens, CHUNK):
        stop = min(start + CHUNK, key.tokens)
        k, v = key.read(start, stop)
        scores = q @ k.float()[:, :, None].transpose(-1, -2)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if attention_mask is not None:
            scores = scores + attention_mask[:, :, None, :, start:stop]
        now = torch.maximum(most, scores.amax(-1, keepdim=True))
        weights, fade = torch.exp(scores - now), torch.exp(most - now)
        total = total * fade + weights.sum(-1, keepdim=True)
        result = result * fade + weights @ v.float()[:, :, None]
        most = now
    result = (result / total).to(query.dtype)
    return result.flatten(1, 2).transpose(1, 2).contiguous(), None


def reads_pages(model: Any) -> bool:
    """Whether the model attends by ``attend``."""
    return bool(model.config._attn_implementation == NAME)


@contextmanager
def reading_pages(model: Any) -> Iterator[None]:
    """Let a model attend by ``attend`` for the length of a block, also where it ends in an exception."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    own = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(own)
