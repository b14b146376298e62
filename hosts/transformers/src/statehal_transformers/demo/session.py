"""The demo's course: load, plan, generate twice, compare."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from transformers import DynamicCache

from statehal_transformers.cache import PooledCache
from statehal_transformers.compat import Cache
from statehal_transformers.demo.compare import Comparison, compare
from statehal_transformers.demo.fault import AFTER_STEP, Fault, flip_byte
from statehal_transformers.demo.generation import Batch, Run, generate
from statehal_transformers.demo.models import Loaded
from statehal_transformers.demo.options import Options
from statehal_transformers.demo.state_bytes import pool_bytes, tensor_bytes
from statehal_transformers.host import PoolHost
from statehal_transformers.restoring import Reuse
from statehal_transformers.tensor_conv import same_convolution

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar of a text and a number of steps, which is called with the steps done."""


@dataclass(frozen=True)
class Stored:
    """What a store did.

    Attributes:
        reuse: of each prompt.
        seconds: of each prompt, to restore or compute its whole blocks.
        counts: of the offloader.
    """

    directory: str
    object_tokens: int
    reuse: list[Reuse]
    seconds: list[float]
    counts: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Session:
    """Both runs and what they left behind, before the pages were given back.

    Attributes:
        pages: in use at the end, by sub-pool.
        pooled_bytes, dynamic_bytes: of state, the most that was held after a step.
        stored: with a store, what came from it.
    """

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
    stored: Stored | None = None


def run(options: Options, loaded: Loaded, bar: Bar) -> Session:
    """Generate with the pooled cache and with transformers' own, from one seed, and compare.

    A model's convolutions are the backend's in both runs; without that their sums would have another order.

    Raises:
        StatehalError: no backend, no plan, or a model whose layers the pooled cache does not keep.
    """
    ids, mask = loaded.encode(options.prompts)
    batch = Batch(ids.to(loaded.model.device), mask.to(loaded.model.device))
    count, length = batch.ids.shape
    pages = -(-(length + options.max_new_tokens) // options.page_size)
    host = PoolHost.from_model(
        loaded.model,
        tokens=count * pages * options.page_size,
        requests=count,
        page_size=options.page_size,
        backend=options.backend,
    )
    faults: list[Fault] = []

    least = AFTER_STEP + 1 if options.inject_fault else 1

    def once(title: str, cache: Cache, steps: int, *, fault: bool = False) -> tuple[Run, int]:
        held = [0]
        own = isinstance(cache, PooledCache)
        with bar(title, steps) as advance, host.routed() if own else same_convolution(host):

            def between(step: int) -> None:
                advance(step)
                held.append(pool_bytes(host) if own else tensor_bytes(cache))
                if fault and step == AFTER_STEP and isinstance(cache, PooledCache):
                    faults.append(flip_byte(host, cache))

            limits = min(least, steps), steps
            given = {host.keyword: cache}
            result = generate(loaded.model, batch, given, seed=options.seed, steps=limits, hook=between)
        return result, max(held)

    with host.new_cache() as warm:
        once("warming up", warm, min(2, options.max_new_tokens))
    dynamic_cache = DynamicCache(config=loaded.model.config)
    dynamic, dynamic_bytes = once("transformers' cache", dynamic_cache, options.max_new_tokens)
    with host.new_cache() as cache:
        pooled, pooled_bytes = once("pooled cache", cache, options.max_new_tokens, fault=options.inject_fault)
        used = {name: host.pool[name].used_pages for name in host.pool}
    return Session(
        loaded,
        host,
        batch,
        pooled,
        dynamic,
        used,
        pooled_bytes,
        dynamic_bytes,
        compare(pooled.logits, dynamic.logits),
        faults[0] if faults else None,
    )
