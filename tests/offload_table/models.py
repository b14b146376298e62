"""A whole model: it fills a store, or begins with what another process stored."""

import hashlib
from functools import partial
from typing import Any

import torch

from offload_table.rows import BLOCK, NEW_TOKENS, PROMPT
from statehal.layout import page_major, token_major
from statehal.portability.store import FileStore
from statehal_transformers import PoolHost, PrefixStore
from statehal_transformers.demo.tiny import tiny_model

LAYOUTS: dict[str, Any] = {
    "page-major": page_major,
    "page-major, HND": partial(page_major, order="HND"),
    "token-major": token_major,
}


def generate(directory: str, job: dict[str, Any], family: str) -> dict[str, Any]:
    """Generate with the store and, where it is read, without: by transformers' own cache, and its own convolution."""
    model = tiny_model(family, torch.float32, "cpu")
    ids = torch.randint(3, 250, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False}
    options |= {"attention_mask": torch.ones_like(ids), "output_logits": True, "return_dict_in_generate": True}
    host = PoolHost.from_model(
        model,
        tokens=2 * (PROMPT + NEW_TOKENS),
        requests=4,
        page_size=job["page_size"],
        backend=job["backend"],
        layouts=LAYOUTS[job["layout"]],
    )
    named: dict[str, Any] = {"model": f"tiny {family}", "revision": "0", "object_tokens": BLOCK}
    with PrefixStore(host, FileStore(directory), host_bytes=64 << 20, **named) as prefixes:
        with host.routed(), prefixes.cache(ids) as cache:
            ours = model.generate(ids, **options, **cache.as_argument())
        prefixes.wait()
        stored = prefixes.counts()["store"]
    found = {"family": family, "asked": cache.reuse.asked, "reused": cache.reuse.reused, "why": cache.reuse.why}
    found["digest"] = hashlib.sha256(torch.cat(ours.logits).numpy().tobytes()).hexdigest()
    if job["action"] == "write":
        assert list(stored) == ["done"], stored
        return found | {"blocks": stored["done"]}
    theirs = model.generate(ids, **options)
    return found | {
        "tokens_equal": torch.equal(ours.sequences, theirs.sequences),
        "difference": max(float((a - b).abs().max()) for a, b in zip(ours.logits, theirs.logits, strict=True)),
    }
