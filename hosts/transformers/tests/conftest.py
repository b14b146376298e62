"""Tiny models with random weights, and pools for them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
)

from statehal_transformers import PooledCache, PoolHost
from statehal_transformers.compat import cache_keyword

WINDOW = 8
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def llama_config(**changes: Any) -> LlamaConfig:
    """Three full-attention layers, six heads on three."""
    return LlamaConfig(
        **(SIZES | {"num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3} | changes)
    )


def gemma3_config(**changes: Any) -> Gemma3TextConfig:
    """Four layers, the second of full attention, the others with a window of 8 tokens."""
    own = {
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
    }
    return Gemma3TextConfig(**(SIZES | own | changes))


CONFIGS: dict[str, Callable[..., PreTrainedConfig]] = {"llama": llama_config, "gemma3": gemma3_config}
MODELS: dict[str, Any] = {"llama": LlamaForCausalLM, "gemma3": Gemma3ForCausalLM}


@cache
def tiny_model(kind: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return MODELS[kind](CONFIGS[kind]()).eval().to(dtype)


@dataclass(frozen=True)
class Setup:
    """A model, a pool for it, and a left-padded batch."""

    model: Any
    host: PoolHost
    ids: torch.Tensor
    mask: torch.Tensor

    def caches(self) -> tuple[DynamicCache, PooledCache]:
        return DynamicCache(config=self.model.config), self.host.new_cache()

    def generate(
        self, kv: Any, ids: torch.Tensor | None = None, mask: torch.Tensor | None = None, **options: Any
    ) -> Any:
        torch.manual_seed(1)
        ids, mask = (self.ids, self.mask) if ids is None else (ids, mask)
        settings = {"max_new_tokens": 20, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        return self.model.generate(ids, attention_mask=mask, **{cache_keyword(): kv}, **(settings | options))

    def forward(self, kv: Any, ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = self.model(ids, **{cache_keyword(): kv}).logits
        return logits


def left_padded(lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids and their mask, every row as long as the longest."""
    width = max(lengths)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 97, (len(lengths), width), generator=generator)
    mask = torch.tensor([[0] * (width - length) + [1] * length for length in lengths])
    return ids.where(mask.bool(), 0), mask


@pytest.fixture
def setup() -> Callable[..., Setup]:
    """Make a ``Setup`` of a kind of model."""

    def make(
        kind: str,
        dtype: torch.dtype = torch.float32,
        page_size: int = 16,
        lengths: tuple[int, ...] = (5, 14, 23),
        tokens: int = 1024,
    ) -> Setup:
        model = tiny_model(kind, dtype)
        host = PoolHost.from_config(model.config, dtype=dtype, tokens=tokens, page_size=page_size)
        return Setup(model, host, *left_padded(lengths))

    return make


@pytest.fixture
def configs() -> dict[str, Callable[..., PreTrainedConfig]]:
    """Makers of the tiny configs, by kind."""
    return CONFIGS
