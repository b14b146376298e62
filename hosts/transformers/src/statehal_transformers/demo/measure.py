"""What the demo measures besides: decoding beside transformers' cache, and the state that beams and windows hold."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache

from statehal.spec import Latent
from statehal_transformers.demo.state_bytes import pool_bytes, tensor_bytes
from statehal_transformers.demo.tiny import tiny_model
from statehal_transformers.host import PoolHost

BATCH, CONTEXT, ROUNDS = 4, 1000, 20


def decode_speed(model: Any, *, page_size: int, backend: str | None) -> dict[str, Any]:
    """Decode one token of four sequences of 1,000 tokens, with each cache in turn; transformers' is used as it is.

    Returns:
        Medians over the rounds, in seconds a step, and of the ratio to transformers' speed within a round; above 1 the
        pool is faster. ``"pages"`` is of attention that reads the pool, where the model allows that.
    """
    tokens = 2 * BATCH * -(-(CONTEXT + ROUNDS + 1) // page_size) * page_size
    host = PoolHost.from_model(model, tokens=tokens, requests=2 * BATCH, page_size=page_size, backend=backend)
    ids = torch.randint(3, 250, (BATCH, CONTEXT), generator=torch.Generator().manual_seed(0)).to(model.device)
    runs: dict[str, tuple[Any, Callable[[], AbstractContextManager[None]]]] = {
        "pooled": (host.new_cache(), nullcontext),
        "pages": (host.new_cache(), host.reading_pages),
        "transformers": (DynamicCache(config=model.config), nullcontext),
    }
    if not host.groups or any(isinstance(group.spec, Latent) for group in host.groups):
        del runs["pages"]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for step in range(ROUNDS + 1):
            for name, (cache, attention) in runs.items():
                with nullcontext() if name == "transformers" else host.routed(), attention():
                    started = time.perf_counter()
                    logits = model(ids[:, -1:] if step else ids, **{host.keyword: cache}).logits
                    logits[0, -1, 0].item()  # a device has worked by then
                    if step:
                        seconds[name].append(time.perf_counter() - started)
    found: dict[str, Any] = {"batch": BATCH, "context": CONTEXT, "rounds": ROUNDS}
    for name, values in seconds.items():
        ratios = [theirs / ours for ours, theirs in zip(values, seconds["transformers"], strict=True)]
        found[name] = {"seconds": median(values), "speed_ratio": median(ratios)}
    return found


def held_bytes(family: str, *, device: str, backend: str | None, prompt: int, **options: Any) -> dict[str, Any]:
    """What state either cache holds after a step of a tiny model: at most, and at the end.

    Transformers computes a prompt once for each beam, so that all hold it until the first reordering.
    """
    model = tiny_model(family, torch.float32, device)
    host = PoolHost.from_model(model, tokens=8 * (prompt + 64), requests=8, page_size=16, backend=backend)
    ids = torch.randint(3, 250, (1, prompt), generator=torch.Generator().manual_seed(0)).to(device)
    found: dict[str, int] = {}
    with host.new_cache() as pooled:
        for name, cache in (("pooled", pooled), ("transformers", DynamicCache(config=model.config))):
            held: list[int] = []

            def look(_: Any, scores: torch.Tensor, cache: Any = cache, held: list[int] = held) -> torch.Tensor:
                held.append(pool_bytes(host) if cache is pooled else tensor_bytes(cache))
                return scores

            settings = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False, "logits_processor": [look]}
            model.generate(ids, **{host.keyword: cache}, **settings, **options)
            found |= {f"{name}_most_bytes": max(held), f"{name}_last_bytes": held[-1]}
    return {"family": family, "prompt": prompt} | options | found


def measure(model: Any, *, page_size: int, backend: str | None) -> dict[str, Any]:
    """Everything that ``--measure`` prints."""
    device = str(model.device)
    return {
        "decode": decode_speed(model, page_size=page_size, backend=backend),
        "beams": held_bytes("llama", device=device, backend=backend, prompt=256, num_beams=4),
        "windows": held_bytes("gemma3", device=device, backend=backend, prompt=1024),
    }
