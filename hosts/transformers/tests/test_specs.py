"""Which sub-pools a model asks for, and what is refused."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from statehal.errors import StatehalError, Unsupported
from statehal.spec import Attention, ConvRecurrent, Latent
from statehal_transformers import PoolHost
from statehal_transformers.specs import layer_kinds, model_specs

SMALL = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "pad_token_id": 0}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}

SLIDING = {"layer_types": ["hybrid_sliding"], "num_hidden_layers": 1, "sliding_window": 8}


def config(kind: str, **changes: Any) -> Any:
    return AutoConfig.for_model(kind, **changes)


def model(kind: str, **changes: Any) -> Any:
    return AutoModelForCausalLM.from_config(config(kind, **(SMALL | changes))).eval()


def test_llama_is_one_sub_pool_of_full_attention() -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None}
    spec = Attention("full", layers=(0, 1), kv_heads=2, head_dim=8, dtype="bfloat16")
    assert model_specs(model("llama", **sizes).to(torch.bfloat16)) == (spec,)


def test_gemma3_is_two_sub_pools_under_the_models_own_layer_ids() -> None:
    own = {"num_hidden_layers": 7, "sliding_window": 512, "num_attention_heads": 2, "num_key_value_heads": 1}
    swa, full = model_specs(model("gemma3_text", head_dim=24, **own))
    assert swa == Attention("swa", (0, 1, 2, 3, 4, 6), kv_heads=1, head_dim=24, dtype="float32", window=512)
    assert full == Attention("full", (5,), kv_heads=1, head_dim=24, dtype="float32")


def test_a_composite_model_is_read_for_its_text_decoder() -> None:
    text = SMALL | {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    whole = AutoModelForCausalLM.from_config(config("gemma3", text_config=text, vision_config=VISION)).eval()
    assert model_specs(whole) == (Attention("swa", (0, 1), kv_heads=1, head_dim=8, dtype="float32", window=4096),)


def test_layers_of_other_sizes_have_a_sub_pool_of_their_own() -> None:
    sizes = {"num_hidden_layers": 4, "head_dim": 8, "num_attention_heads": 2}
    mixed, other = (model("qwen3", **sizes, num_key_value_heads=heads) for heads in (1, 2))
    for layer in (1, 3):
        mixed.model.layers[layer] = other.model.layers[layer]
    one, two = model_specs(mixed)
    assert one == Attention("full", (0, 2), kv_heads=1, head_dim=8, dtype="float32")
    assert two == Attention("full2", (1, 3), kv_heads=2, head_dim=8, dtype="float32")


FAMILIES: dict[str, tuple[Any, ...]] = {
    "deepseek_v3": (Latent("latent", (0, 1, 2), kv_lora_rank=32, qk_rope_head_dim=8, dtype="float32"),),
    "mimo_v2_flash": (
        Attention("full", (0,), kv_heads=2, head_dim=192, dtype="float32", v_head_dim=128),
        Attention("swa", (1,), kv_heads=4, head_dim=192, dtype="float32", v_head_dim=128, window=8),
    ),
    "lfm2": (
        ConvRecurrent("conv", (0, 2), channels=48, width=3, dtype="float32", verify_tokens=6),
        Attention("full", (1,), kv_heads=2, head_dim=12, dtype="float32"),
    ),
    # channels: 96 + 2 groups x 8
    "mamba2": (ConvRecurrent("conv", (0, 1, 2), channels=112, width=4, dtype="float32", state=(6, 16, 8)),),
    # channels: q and k of 2 x 8, v of 4 x 8
    "qwen3_next": (
        ConvRecurrent("conv", (0, 2), channels=64, width=4, dtype="float32", state=(4, 8, 8)),
        Attention("full", (1,), kv_heads=2, head_dim=16, dtype="float32"),
    ),
    "kimi_linear": (
        ConvRecurrent("conv", (0, 2), channels=48, width=4, dtype="float32", state=(2, 8, 8)),
        Latent("latent", (1,), kv_lora_rank=32, qk_rope_head_dim=8, dtype="float32"),
    ),
    "falcon_h1": (
        ConvRecurrent("conv", (0, 1), channels=112, width=4, dtype="float32", state=(6, 16, 8)),
        Attention("full", (0, 1), kv_heads=2, head_dim=12, dtype="float32"),
    ),
}


def test_the_sub_pools_of_every_family(tiny: Any) -> None:
    for kind, expected in FAMILIES.items():
        assert model_specs(tiny(kind, torch.float32), draft_tokens=5) == expected, kind


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        ("llama4", {}, "layer 0 of 'llama4_text' is of type chunked_attention"),
        ("deepseek_v32", {}, "layer 0 of 'deepseek_v32' is of type indexed_attention"),
        ("zaya", SLIDING, "layer 0 of 'zaya' is of type hybrid_sliding"),
        ("gemma3n_text", {}, r"layer \d+ of 'gemma3n_text' is of type dummy"),
        ("t5", {}, "'t5' is an encoder-decoder: cross_attention is not kept here"),
    ],
)
def test_other_layers_are_refused_by_type(kind: str, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Unsupported, match=text + r".*\(fix: use transformers' DynamicCache for this model\)"):
        layer_kinds(config(kind, **changes))


def test_convolutions_that_cannot_be_routed_are_refused() -> None:
    """Zaya convolves by functions of its own."""
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "router_hidden_size": 16}
    zaya = model("zaya", **sizes, **experts, eos_token_id=None)
    with pytest.raises(Unsupported, match=r"'zaya' keeps conv states, but calls no causal_conv1d_fn .*\(fix: use tran"):
        PoolHost.from_model(zaya, tokens=64)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tokens": 64, "backend": "nope"}, "no backend 'nope' is installed"),
        ({"total_bytes": 10}, "10 bytes hold 0 pages"),
        ({}, "give total_bytes or tokens"),
        ({"tokens": 64, "page_size": 0}, "page_size=0: expected an integer of at least 1"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(tiny: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(StatehalError, match=text):
        PoolHost.from_model(tiny("llama", torch.float32), **options)
