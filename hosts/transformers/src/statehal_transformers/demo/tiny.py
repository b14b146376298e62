"""A tiny model with random weights, for machines that cannot fetch real ones. It generates noise."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

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


def tiny_llama(dtype: torch.dtype, device: str) -> Any:
    """Four layers of a llama, 160 thousand random weights, the same at each call."""
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(config)
    return model.to(device=torch.device(device), dtype=dtype).eval()
