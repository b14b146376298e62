"""What the layers return equals a DynamicCache's, tensor by tensor, whatever is done to the cache in between."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from statehal_transformers import PoolHost

HEADS, DIM = 2, 16


class Walk:
    """The same random operations on both caches, each result compared."""

    def __init__(self, host: PoolHost, config: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.caches = (DynamicCache(config=config), host.new_cache())
        self.layers = config.num_hidden_layers
        self.batch = 2
        self.done: list[str] = []

    @property
    def length(self) -> int:
        return self.caches[0].get_seq_length()

    def update(self, tokens: int) -> None:
        for layer in range(self.layers):
            k, v = (torch.randn(self.batch, tokens, HEADS, DIM).to(torch.bfloat16).transpose(1, 2) for _ in "kv")
            sizes = {cache.get_mask_sizes(tokens, layer) for cache in self.caches}
            assert len(sizes) == 1
            theirs, ours = (cache.update(k.clone(), v.clone(), layer) for cache in self.caches)
            for a, b in zip(ours, theirs, strict=True):
                assert a.shape == b.shape
                assert torch.equal(a.view(torch.int16), b.view(torch.int16)), self.done
                assert a.is_contiguous() == b.is_contiguous()
            assert ours[0].shape[2] == sizes.pop()[0]
        assert len({cache.get_seq_length(layer) for cache in self.caches for layer in range(self.layers)}) == 1

    def reorder(self) -> None:
        index = torch.tensor([self.random.randrange(self.batch) for _ in range(self.batch)])
        self.both("reorder_cache", index)

    def repeat(self) -> None:
        if self.batch < 4:
            self.both("batch_repeat_interleave", 2)
            self.batch *= 2

    def select(self) -> None:
        keep = torch.tensor([True] + [self.random.random() < 0.5 for _ in range(self.batch - 1)])
        self.both("batch_select_indices", keep)
        self.batch = int(keep.sum())

    def reset(self) -> None:
        self.both("reset")
        self.batch = self.random.randint(1, 3)

    def crop(self, window: int, recorded: int) -> int:
        """Crop what may be cropped: anything up to the window, recorded tokens beyond it."""
        most = self.length if self.length < window else recorded
        tokens = self.random.randint(0, most)
        if self.length < window or self.caches[0].is_recording_past(0):
            self.both("crop", -tokens)
        return tokens

    def both(self, method: str, *arguments: Any) -> None:
        self.done.append(f"{method}{arguments}")
        for cache in self.caches:
            getattr(cache, method)(*arguments)


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_random_walk(host_of: Callable[..., Any], kind: str, page_size: int) -> None:
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": DIM}
    model, host = host_of(kind, torch.bfloat16, page_size, 4096, **heads)
    config = model.config
    torch.manual_seed(page_size)
    for seed in range(6):
        walk = Walk(host, config, seed)
        window = 10**9 if kind == "llama" else config.sliding_window
        for _ in range(25):
            choice = walk.random.random()
            if choice < 0.6:
                walk.update(walk.random.choice([1, 1, 1, 2, 5, 11]))
            elif not walk.length:
                continue  # transformers' own cache does not take the other operations while it is empty
            elif choice < 0.7:
                walk.crop(window, 0)
            else:
                walk.random.choice([walk.reorder, walk.repeat, walk.select, walk.select, walk.reset])()
            host.pool.check()
        pooled = walk.caches[1]
        pooled.release()
        host.pool.check()
        assert [host.pool[name].used_pages for name in host.pool] == [0] * len(host.groups)


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_recording_lets_a_window_go_back(host_of: Callable[..., Any], page_size: int) -> None:
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": DIM}
    model, host = host_of("gemma3", torch.bfloat16, page_size, 4096, **heads)
    config = model.config
    for seed in range(6):
        walk = Walk(host, config, seed)
        walk.update(5)
        walk.both("activate_past_recording")
        for _ in range(12):
            recorded = 0
            for _ in range(walk.random.choice([1, 1, 2])):  # two forward passes before one crop
                tokens = walk.random.choice([1, 2, 4])
                walk.update(tokens)
                recorded += tokens
            walk.crop(config.sliding_window, recorded)
            host.pool.check()
        walk.caches[1].release()
