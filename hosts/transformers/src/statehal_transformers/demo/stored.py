"""The demo's course with a store: each prompt begins with what lies there, and is compared like any other."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import DynamicCache

from statehal.portability.offload import chunk_ends
from statehal.portability.store import FileStore
from statehal_transformers.demo.compare import Comparison, compare
from statehal_transformers.demo.generation import Batch, Run, generate
from statehal_transformers.demo.models import Loaded
from statehal_transformers.demo.options import Options
from statehal_transformers.demo.session import Bar, Session, Stored
from statehal_transformers.demo.state_bytes import pool_bytes, tensor_bytes
from statehal_transformers.host import PoolHost
from statehal_transformers.prefix_store import PrefixStore
from statehal_transformers.tensor_conv import same_convolution

HOST_BYTES = 64 << 20


@dataclass
class Side:
    """What one of the two caches did with a prompt."""

    run: Run
    most_bytes: int


def run_stored(options: Options, loaded: Loaded, bar: Bar) -> Session:
    """Generate from each prompt by itself, with the store's cache and with transformers' own, in the same passes.

    Raises:
        StatehalError: no backend, no plan, no store, or a model whose layers the pooled cache does not keep.
    """
    assert options.store is not None
    ids, mask = loaded.encode(options.prompts)
    batch = Batch(ids.to(loaded.model.device), mask.to(loaded.model.device))
    host = PoolHost.from_model(
        loaded.model,
        tokens=2 * (batch.ids.shape[1] + options.max_new_tokens + options.page_size),
        requests=4,  # slots that are being stored are held beside those in use
        page_size=options.page_size,
        backend=options.backend,
    )
    named: dict[str, Any] = {"model": loaded.name, "revision": weights_digest(loaded.model)}
    reuse, seconds, ours, theirs, used = [], [], [], [], {}
    with PrefixStore(
        host, FileStore(options.store), object_tokens=options.object_tokens, host_bytes=HOST_BYTES, **named
    ) as prefixes:
        for number, (row, kept) in enumerate(zip(batch.ids, batch.mask.bool(), strict=True), start=1):
            prompt = row[None, kept]
            with bar(f"prompt {number}, pooled cache", options.max_new_tokens) as advance, host.routed():
                started = time.perf_counter()
                with prefixes.cache(prompt) as cache:
                    seconds.append(time.perf_counter() - started)
                    ours.append(
                        _generated(options, loaded, prompt, cache.as_argument(), advance, lambda: pool_bytes(host))
                    )
                    reuse.append(cache.reuse)
                    used = {name: host.pool[name].used_pages for name in host.pool}
                prefixes.wait()  # so that the next prompt finds what this one stored
            with (
                bar(f"prompt {number}, transformers' cache", options.max_new_tokens) as advance,
                same_convolution(host),
            ):
                theirs.append(_with_dynamic_cache(options, loaded, host, prompt, advance))
        stored = Stored(str(options.store), options.object_tokens, reuse, seconds, prefixes.counts())
    pooled, dynamic = (_joined([side.run for side in sides]) for sides in (ours, theirs))
    return Session(
        loaded,
        host,
        batch,
        pooled,
        dynamic,
        used,
        max(side.most_bytes for side in ours),
        max(side.most_bytes for side in theirs),
        _all([compare(a.run.logits, b.run.logits) for a, b in zip(ours, theirs, strict=True)]),
        None,
        stored,
    )


def _generated(
    options: Options,
    loaded: Loaded,
    ids: torch.Tensor,
    cache: dict[str, Any],
    advance: Callable[[int], None],
    held: Callable[[], int],
    before: int = 0,
) -> Side:
    """Sample from a cache that holds ``before`` tokens that are not among the ids."""
    most = [0]

    def between(step: int) -> None:
        advance(step)
        most.append(held())

    mask = ids.new_ones((1, before + ids.shape[1]))
    steps = 1, options.max_new_tokens
    run = generate(loaded.model, Batch(ids, mask), cache, seed=options.seed, steps=steps, hook=between)
    return Side(run, max(most))


def _with_dynamic_cache(
    options: Options, loaded: Loaded, host: PoolHost, ids: torch.Tensor, advance: Callable[[int], None]
) -> Side:
    """The same with transformers' own cache, its prompt computed in the same passes: a block each, then the rest."""
    cache, n = DynamicCache(config=loaded.model.config), options.object_tokens
    whole = (ids.shape[1] - 1) // n * n
    with torch.no_grad():
        for stop in chunk_ends(0, whole, n):
            loaded.model(input_ids=ids[:, stop - n : stop], use_cache=True, **{host.keyword: cache})
    own = {host.keyword: cache}
    return _generated(options, loaded, ids[:, whole:], own, advance, lambda: tensor_bytes(cache), whole)


def _joined(runs: Sequence[Run]) -> Run:
    """The runs of several prompts as one."""
    tokens = [row for run in runs for row in run.tokens]
    return Run(tokens, tuple(one for run in runs for one in run.logits), sum(run.seconds for run in runs))


def _all(comparisons: Sequence[Comparison]) -> Comparison:
    """The comparisons of several prompts as one; of the first that differs, with its number."""
    difference = None
    for number, one in enumerate(comparisons):
        if one.difference is not None and difference is None:
            difference = replace(one.difference, prompt=number)
    steps = sum(one.steps[0] for one in comparisons), sum(one.steps[1] for one in comparisons)
    return Comparison(steps, sum(one.logits for one in comparisons), difference)


def weights_digest(model: Any) -> str:
    """What tells these weights, and what the config makes of them, from all others."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(model.config.to_json_string().encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
