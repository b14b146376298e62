"""The state is in the pool and nowhere else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from statehal_transformers import PooledCache

KINDS = {"llama": 3, "gemma3": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_filling_the_pool_with_nan_makes_the_logits_nan(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind)
    token = torch.full((3, 1), 5)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        assert not s.forward(cache, token).isnan().any()
        s.host.pool.buffer.view(torch.float32).fill_(float("nan"))
        assert s.forward(cache, token).isnan().all()


@pytest.mark.parametrize("layer", range(4))
def test_every_layer_reads_keys_and_values_from_the_pool(setup: Callable[..., Any], layer: int) -> None:
    """Change one row of one layer: the logits of that sequence, and of no other, change."""
    s = setup("gemma3", lengths=(12, 12))
    token = torch.full((2, 1), 5)
    group = next(group for group in s.host.groups if layer in group.spec.layers)
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        other = cache.copy()
        expected = s.forward(other, token)
        other.release()
        for field in ("k", "v"):
            ids = group.subpool.kernel_ids(cache.pages[1].token_ids(11, 12)).tensor
            row = group.subpool.view(field, layer, "row")[int(ids)]
            saved = row.clone()
            row += 1
            other = cache.copy()
            logits = s.forward(other, token)
            other.release()
            row.copy_(saved)
            assert torch.equal(logits[0], expected[0])
            assert not torch.equal(logits[1], expected[1])


def tensors(value: Any, seen: set[int], path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that can be reached from a value through attributes, mappings and sequences."""
    if id(value) in seen or isinstance(value, (type, str, bytes, int, float)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(f"{path}[{key!r}]", one) for key, one in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    else:
        slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        names = [*vars(value)] if hasattr(value, "__dict__") else slots
        items = [(f"{path}.{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    for where, one in items:
        yield from tensors(one, seen, where)


@pytest.mark.parametrize("kind", [*KINDS, "lfm2", "falcon_h1"])
def test_no_layer_holds_a_growing_tensor(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind)
    pool = s.host.pool.buffer.untyped_storage()
    with s.host.new_cache() as cache:
        s.forward(cache, s.ids)
        for _ in range(3):
            s.forward(cache, s.ids)
        assert all(getattr(layer, name, None) is None for layer in cache.layers for name in ("keys", "values"))
        bound = [group.conv for group in s.host.conv_groups]  # it was given the model's weights
        own = {
            path: tensor
            for path, tensor in tensors({"layers": cache.layers}, {id(one) for one in (s.host, s.model, *bound)})
            if tensor.untyped_storage().data_ptr() != pool.data_ptr()
        }
        assert own, "the ids are tensors: finding none means that the search is broken"
        expected = {torch.int64} | ({torch.bool} if bound else set())  # of the latter: which slots have a state
        assert {tensor.dtype for tensor in own.values()} == expected, own.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_writes_once_a_layer_and_translates_once_a_sub_pool(setup: Callable[..., Any], kind: str) -> None:
    s = setup(kind)
    writes: list[tuple[int, int]] = []

    def counting(group: Any) -> Callable[..., None]:
        def write(layer: int, ids: Any, k: torch.Tensor, v: torch.Tensor) -> None:
            writes.append((layer, id(ids)))
            group.write(layer, ids, k, v)

        return write

    host = replace(s.host, groups=tuple(replace(group, write=counting(group)) for group in s.host.groups))
    with PooledCache(host) as cache:
        output = s.generate(cache, max_new_tokens=7, eos_token_id=None)
        assert len(output.logits) == 7
    assert [layer for layer, _ in writes] == list(range(KINDS[kind])) * 7
    assert len({ids for layer, ids in writes[: KINDS[kind]]}) == len(host.groups)


PROGRAM = """
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Lfm2Config, Lfm2ForCausalLM
from statehal_transformers import PoolHost
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
             num_key_value_heads=1, pad_token_id=0, eos_token_id=None)
layers = ["sliding_attention", "full_attention", "sliding_attention"]
gemma = Gemma3ForCausalLM(Gemma3TextConfig(**sizes, head_dim=16, sliding_window=8, layer_types=layers))
lfm = Lfm2ForCausalLM(Lfm2Config(**sizes, layer_types=["conv", "full_attention", "conv"]))
for model in (gemma.eval(), lfm.eval()):
    host = PoolHost.from_model(model, tokens=256, requests=2)
    with host.routed(), host.new_cache() as cache:
        output = model.generate(torch.ones(2, 20, dtype=torch.long), max_new_tokens=11, **cache.as_argument())
    assert output.shape == (2, 31)
"""


def test_the_trace_shows_every_layer_and_step(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    environment = {**os.environ, "STATEHAL_TRACE": str(trace), "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    counts: dict[str, int] = {}
    for event in events:
        counts[event["name"]] = counts.get(event["name"], 0) + (event["ph"] in "XB")
    assert counts["kv.write"] == (3 + 1) * 11  # attention layers x steps
    assert (counts["conv.prefill"], counts["conv.decode"], counts["conv.commit"]) == (2, 2 * 10, 11)
    # sub-pools of tokens x steps, for reads and writes alike; slots are translated when they are taken
    assert counts["memory.translate"] == (2 + 1) * 11 + 1
    assert counts["memory.gather"] == (3 + 1) * 2 * 11  # attention layers x keys and values x steps
