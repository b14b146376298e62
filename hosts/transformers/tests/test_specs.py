"""Which sub-pools a config asks for, and what is refused."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig

from statehal.errors import StatehalError, Unsupported
from statehal.spec import Attention
from statehal_transformers import PoolHost
from statehal_transformers.specs import attention_specs


def config(kind: str, **changes: Any) -> Any:
    return AutoConfig.for_model(kind, **changes)


def test_llama_is_one_sub_pool_of_full_attention() -> None:
    spec = Attention("full", layers=(0, 1), kv_heads=8, head_dim=64, dtype="bfloat16")
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 8, "hidden_size": 1024}
    assert attention_specs(config("llama", head_dim=None, **sizes), torch.bfloat16) == (spec,)


def test_gemma3_is_two_sub_pools_under_the_models_own_layer_ids() -> None:
    swa, full = attention_specs(config("gemma3_text", num_hidden_layers=7, sliding_window=512), torch.float32)
    assert (swa.name, swa.layers, swa.window) == ("swa", (0, 1, 2, 3, 4, 6), 512)
    assert (full.name, full.layers, full.window) == ("full", (5,), None)
    assert (full.kv_heads, full.head_dim, full.dtype) == (4, 256, "float32")


def test_a_composite_config_is_read_for_its_text_decoder() -> None:
    specs = attention_specs(config("gemma3"), torch.float32)
    assert specs == attention_specs(config("gemma3").get_text_config(decoder=True), torch.float32)


def test_layers_of_other_sizes_have_a_sub_pool_of_their_own() -> None:
    own = {index: {"head_dim": 128} for index in (1, 3)}
    specs = attention_specs(config("qwen3", num_hidden_layers=4, head_dim=64, per_layer_config=own), torch.float32)
    assert [(spec.name, spec.layers, spec.head_dim) for spec in specs] == [("full", (0, 2), 64), ("full2", (1, 3), 128)]


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        ("qwen3_next", {}, "layer 0 of 'qwen3_next' is of type linear_attention"),
        ("mamba2", {}, "layer 0 of 'mamba2' is of type linear_attention"),
        ("falcon_h1", {}, "layer 0 of 'falcon_h1' is of type hybrid"),
        (
            "lfm2",
            {"layer_types": ["full_attention", "conv"], "num_hidden_layers": 2},
            "layer 1 of 'lfm2' is of type conv",
        ),
        ("llama4", {}, "layer 0 of 'llama4_text' is of type chunked_attention"),
        ("deepseek_v3", {}, r"layer 0 of 'deepseek_v3' is of type latent_attention \(kv_lora_rank 512\)"),
        ("deepseek_v32", {}, "layer 0 of 'deepseek_v32' is of type indexed_attention"),
        ("gemma3n_text", {}, r"layer \d+ of 'gemma3n_text' is of type dummy"),
        ("t5", {}, "'t5' is an encoder-decoder: cross_attention is not kept here"),
        ("rwkv", {}, "config of 'rwkv' does not say how many key-value heads a layer has"),
    ],
)
def test_other_layers_are_refused_by_type(kind: str, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Unsupported, match=text + r".*\(fix: use transformers' DynamicCache for this model\)"):
        PoolHost.from_config(config(kind, **changes), dtype=torch.float32, tokens=64)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tokens": 64, "backend": "nope"}, "no backend 'nope' is installed"),
        ({"total_bytes": 10}, "10 bytes hold 0 pages"),
        ({}, "give total_bytes or tokens"),
        ({"tokens": 64, "page_size": 0}, "page_size=0: expected an integer of at least 1"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(options: dict[str, Any], text: str) -> None:
    with pytest.raises(StatehalError, match=text):
        PoolHost.from_config(config("llama", num_hidden_layers=1), dtype=torch.float32, **options)
