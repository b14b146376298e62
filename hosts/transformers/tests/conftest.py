"""Tiny models with random weights, and pools for them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from statehal_transformers import PooledCache, PoolHost
from statehal_transformers.tensor_conv import same_convolution

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
LATENT: dict[str, Any] = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
}
FEW_HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 1, "moe_intermediate_size": 16}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    # three full-attention layers, six heads on three
    "llama": ("llama", {"num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3}),
    # four layers, the second of full attention, the others with a window of 8 tokens
    "gemma3": (
        "gemma3_text",
        FEW_HEADS
        | {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        },
    ),
    # attention sinks, eager attention
    "gpt_oss": (
        "gpt_oss",
        FEW_HEADS
        | {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    # one latent row a token: 32 elements and 8
    "deepseek_v3": (
        "deepseek_v3",
        LATENT
        | {
            "num_hidden_layers": 3,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
        },
    ),
    # heads of 192 and 128
    "mimo_v2_flash": (
        "mimo_v2_flash",
        FEW_HEADS
        | EXPERTS
        | {
            "num_hidden_layers": 2,
            "n_routed_experts": 2,
            "sliding_window": WINDOW,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    # short convolutions without a recurrent state
    "lfm2": (
        "lfm2",
        FEW_HEADS | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3},
    ),
    "mamba2": (
        "mamba2",
        {
            "num_hidden_layers": 3,
            "num_heads": 6,
            "head_dim": 16,
            "state_size": 8,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "qwen3_next": (
        "qwen3_next",
        FEW_HEADS
        | EXPERTS
        | {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_experts": 2,
            "shared_expert_intermediate_size": 16,
        },
    ),
    # latent rows beside KDA
    "kimi_linear": (
        "kimi_linear",
        LATENT
        | {
            "num_hidden_layers": 3,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "linear_head_dim": 8,
            "linear_num_heads": 2,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        },
    ),
    # layers that attend and convolve
    "falcon_h1": (
        "falcon_h1",
        FEW_HEADS
        | {
            "num_hidden_layers": 2,
            "mamba_n_heads": 6,
            "mamba_d_head": 16,
            "mamba_d_ssm": 96,
            "mamba_d_state": 8,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 8,
        },
    ),
}
ABSENT = {"mamba2": ("intermediate_size", "max_position_embeddings")}
"""Sizes that a family does not have."""


def tiny_config(kind: str, **changes: Any) -> Any:
    model_type, own = FAMILIES[kind]
    sizes = {name: value for name, value in SIZES.items() if name not in ABSENT.get(kind, ())}
    return AutoConfig.for_model(model_type, **(sizes | own | changes))


def model_of(config: Any, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval().to(dtype)


@cache
def tiny_model(kind: str, dtype: torch.dtype) -> Any:
    return model_of(tiny_config(kind), dtype)


@dataclass(frozen=True)
class Setup:
    """A model, a pool for it, and a left-padded batch."""

    model: Any
    host: PoolHost
    ids: torch.Tensor
    mask: torch.Tensor

    def caches(self) -> tuple[DynamicCache, PooledCache]:
        return DynamicCache(config=self.model.config), self.host.new_cache()

    def convolution(self, kv: Any) -> AbstractContextManager[Any]:
        """The reference's convolution, whatever the cache: of the pool's slots, or of a dynamic cache's tensors."""
        if not self.host.modules:
            return nullcontext()
        return self.host.routed() if isinstance(kv, PooledCache) else same_convolution(self.host)

    def generate(
        self, kv: Any, ids: torch.Tensor | None = None, mask: torch.Tensor | None = None, **options: Any
    ) -> Any:
        torch.manual_seed(1)
        ids, mask = (self.ids, self.mask) if ids is None else (ids, mask)
        settings = {"max_new_tokens": 20, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        with self.convolution(kv):
            return self.model.generate(ids, attention_mask=mask, **{self.host.keyword: kv}, **(settings | options))

    def forward(self, kv: Any, ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), self.convolution(kv):
            logits: torch.Tensor = self.model(ids, **{self.host.keyword: kv}).logits
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
    """Make a ``Setup`` of a kind of model, on the reference backend, which rounds conv outputs once."""

    def make(
        kind: str,
        dtype: torch.dtype = torch.float32,
        page_size: int = 16,
        lengths: tuple[int, ...] = (5, 14, 23),
        **plan: Any,
    ) -> Setup:
        model = tiny_model(kind, dtype)
        budget = {} if "total_bytes" in plan else {"tokens": 1024, "requests": 3 * len(lengths)}
        host = PoolHost.from_model(model, page_size=page_size, backend="reference", **(budget | plan))
        return Setup(model, host, *left_padded(lengths))

    return make


@pytest.fixture
def host_of() -> Callable[..., tuple[Any, PoolHost]]:
    """Make a model of a kind with a changed config, and a host for it."""

    def make(kind: str, dtype: torch.dtype, page_size: int, tokens: int, **changes: Any) -> tuple[Any, PoolHost]:
        model = model_of(tiny_config(kind, **changes), dtype)
        return model, PoolHost.from_model(model, tokens=tokens, page_size=page_size, backend="reference")

    return make


@pytest.fixture
def tiny() -> Callable[[str, torch.dtype], Any]:
    """Make the tiny model of a family."""
    return tiny_model
