"""Tiny models with random weights, of every family. They generate noise."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

PAD, EOS = 256, 257


class ByteTokenizer:
    """Text as UTF-8 bytes, left-padded."""

    def encode(self, prompts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and attention mask ``[prompts, tokens]``."""
        rows = [list(prompt.encode()) for prompt in prompts]
        width = max(map(len, rows))
        ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
        return ids, (ids != PAD).long()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids up to the first that is no byte; bytes that are no text are shown as such."""
        return bytes(one for one in ids if one < PAD).decode(errors="backslashreplace")


SIZES: dict[str, Any] = {"vocab_size": 258, "hidden_size": 64, "num_hidden_layers": 4}
DENSE: dict[str, Any] = {"intermediate_size": 128, "max_position_embeddings": 4096}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 1, "moe_intermediate_size": 32}
WINDOW: dict[str, Any] = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"] * 2}
LATENT: dict[str, Any] = {
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
}
LINEAR = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
MAMBA: dict[str, Any] = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 16}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", DENSE | HEADS),
    "gemma3": ("gemma3_text", DENSE | HEADS | WINDOW | {"head_dim": 16}),
    "gpt_oss": (
        "gpt_oss",
        DENSE
        | HEADS
        | WINDOW
        | {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    ),
    "deepseek_v3": ("deepseek_v3", DENSE | LATENT | EXPERTS | {"n_routed_experts": 2, "first_k_dense_replace": 1}),
    "mimo_v2_flash": ("mimo_v2_flash", DENSE | HEADS | EXPERTS | WINDOW | {"n_routed_experts": 2}),
    "lfm2": ("lfm2", DENSE | HEADS | {"layer_types": ["conv", "conv", "full_attention", "conv"]}),
    "mamba2": ("mamba2", {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 32}),
    "qwen3_next": (
        "qwen3_next",
        DENSE
        | HEADS
        | EXPERTS
        | {"head_dim": 16, "num_experts": 2, "shared_expert_intermediate_size": 32, "layer_types": LINEAR}
        | {"linear_num_value_heads": 4, "linear_num_key_heads": 2}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 16},
    ),
    "kimi_linear": (
        "kimi_linear",
        DENSE
        | LATENT
        | EXPERTS
        | {"num_local_experts": 2, "linear_head_dim": 16, "linear_num_heads": 4, "layer_types": LINEAR},
    ),
    "falcon_h1": ("falcon_h1", DENSE | HEADS | MAMBA | {"mamba_n_groups": 1, "mamba_chunk_size": 32}),
}
"""By the name of a family, its type in transformers and the sizes of a tiny model."""


def tiny_model(family: str, dtype: torch.dtype, device: str) -> Any:
    """Four layers of a family with random weights, the same at each call."""
    model_type, sizes = FAMILIES[family]
    ids = {"bos_token_id": None, "eos_token_id": EOS, "pad_token_id": PAD}
    config = AutoConfig.for_model(model_type, **SIZES, **sizes, **ids)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(config)
    return model.to(device=torch.device(device), dtype=dtype).eval()
