"""The demo's course: load, plan, generate twice, compare."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from transformers import DynamicCache

from statehal_transformers.cache import PooledCache
from statehal_transformers.compat import Cache
from statehal_transformers.demo.compare import Comparison, compare
from statehal_transformers.demo.fault import AFTER_STEP, Fault, flip_byte
from statehal_transformers.demo.generation import Batch, Run, generate
from statehal_transformers.demo.models import Loaded
from statehal_transformers.demo.options import Options
from statehal_transformers.host import PoolHost

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar of a text and a number of steps, which is called with the steps done."""


@dataclass(frozen=True)
class Session:
    """Both runs and what they left behind, before the pages were given back."""

    loaded: Loaded
    host: PoolHost
    batch: Batch
    pooled: Run
    dynamic: Run
    pages: dict[str, int]
    pooled_bytes: int
    dynamic_bytes: int
    comparison: Comparison
    fault: Fault | None


def run(options: Options, loaded: Loaded, bar: Bar) -> Session:
    """Generate with the pooled cache and with transformers' own, from one seed, and compare.

    Raises:
        StatehalError: no backend, no plan, or a model whose layers the pooled cache does not keep.
    """
    ids, mask = loaded.encode(options.prompts)
    batch = Batch(ids.to(loaded.model.device), mask.to(loaded.model.device))
    count, length = batch.ids.shape
    pages = -(-(length + options.max_new_tokens) // options.page_size)
    host = PoolHost.from_config(
        loaded.model.config,
        dtype=loaded.model.dtype,
        device=loaded.model.device,
        tokens=count * pages * options.page_size,
        page_size=options.page_size,
        backend=options.backend,
    )
    faults: list[Fault] = []

    least = AFTER_STEP + 1 if options.inject_fault else 1

    def once(title: str, cache: Cache, steps: int, *, fault: bool = False) -> Run:
        with bar(title, steps) as advance:

            def between(step: int) -> None:
                advance(step)
                if fault and step == AFTER_STEP and isinstance(cache, PooledCache):
                    faults.append(flip_byte(host, cache))

            limits = min(least, steps), steps
            return generate(loaded.model, batch, cache, seed=options.seed, steps=limits, hook=between)

    with host.new_cache() as warm:
        once("warming up", warm, min(2, options.max_new_tokens))
    dynamic_cache = DynamicCache(config=loaded.model.config)
    dynamic = once("transformers' cache", dynamic_cache, options.max_new_tokens)
    with host.new_cache() as cache:
        pooled = once("pooled cache", cache, options.max_new_tokens, fault=options.inject_fault)
        used = {name: host.pool[name].used_pages for name in host.pool}
        pooled_bytes = sum(used[name] * host.pool[name].layout.page_bytes for name in used)
    return Session(
        loaded,
        host,
        batch,
        pooled,
        dynamic,
        used,
        pooled_bytes,
        _state_bytes(dynamic_cache),
        compare(pooled.logits, dynamic.logits),
        faults[0] if faults else None,
    )


def _state_bytes(cache: DynamicCache) -> int:
    """Bytes of the tensors that the layers of transformers' own cache hold."""
    layers: list[Any] = cache.layers
    return sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values) if tensor is not None)
