"""A program that a test runs under STATEHAL_TRACE: some steps on a pool, with sentinels in every tensor."""

import contextlib
import importlib
import json
from collections import Counter
from typing import Any

import torch

import statehal
import statehal.errors

SENTINEL, WHOLE = 31337.125, 987654321
STEPS = 7


def main() -> None:
    """Run, and print how often each operation was called, as a plugin counted."""
    hal = statehal.bind("cpu", "reference")
    kv_spec = statehal.Attention("kv", (0, 2), 2, 4, "float32")
    conv_spec = statehal.ConvRecurrent("conv", (1,), 3, 4, "float32")
    plan = hal.plan([kv_spec, conv_spec], tokens=64, requests=4, page_size=4, waste_limit=0.9)
    pool = hal.allocate(plan)
    kv, conv = hal.kv(pool["kv"]), hal.conv(pool["conv"])
    x = torch.full((2, 3), SENTINEL)
    conv.prepare(1, torch.full((3, 4), SENTINEL), torch.full((3,), SENTINEL))
    slots = pool["conv"].kernel_ids(pool.alloc(2, "conv").page_ids())
    conv.prefill(1, x, torch.tensor([0, 1, 2]), slots)
    conv.commit(slots, torch.full((2,), WHOLE))
    pages = pool.alloc(STEPS, "kv")
    rows = torch.full((1, 2, 4), SENTINEL)
    for step in range(STEPS):
        ids = pool["kv"].kernel_ids(pages.token_ids(step, step + 1))
        for layer in (0, 2):
            kv.write(layer, ids, rows, rows)
        conv.decode(1, x, slots)
        conv.commit(slots, torch.tensor([1, WHOLE]))
    kv.move(ids, pool["kv"].space("kernel").assume(torch.tensor([WHOLE])))
    for layer, k in ((5, rows), (0, rows[:, :1])):  # no such layer; another shape
        with contextlib.suppress(statehal.errors.ArgumentError):
            kv.write(layer, ids, k, rows)
    hal.memory.gather(pool["kv"].view("k", 0), torch.tensor([WHOLE]))
    print(json.dumps(importlib.import_module("counting").COUNTS))


class Counting:
    """Every method of an inner object, each call counted as ``label.method``."""

    def __init__(self, counts: Counter[str], label: str, inner: object, methods: tuple[str, ...]) -> None:
        for method in methods:
            found = getattr(inner, method, None)
            if found is not None:
                setattr(self, method, self._counted(counts, f"{label}.{method}", found))

    def _counted(self, counts: Counter[str], name: str, call: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return call(*args, **kwargs)

        return counted


PLUGIN = """
from collections import Counter

from binding.traced_program import Counting
from statehal import hookimpl
from statehal.hookspecs import methods_of

COUNTS = Counter()


@hookimpl
def statehal_fused_kv_write(request):
    from statehal.reference.kv_writer import ReferenceKVWriter as Inner
    return Counting(COUNTS, "kv", Inner(request), methods_of("statehal_fused_kv_write"))


@hookimpl
def statehal_causal_conv1d(request):
    from statehal.reference.causal_conv1d import ReferenceCausalConv1d as Inner
    return Counting(COUNTS, "conv", Inner(request), methods_of("statehal_causal_conv1d"))


@hookimpl
def statehal_memory_ops(request):
    from statehal.reference.memory_ops import ReferenceMemoryOps as Inner
    return Counting(COUNTS, "memory", Inner(), methods_of("statehal_memory_ops"))
"""
"""The module ``counting`` of an overriding plugin; torch is imported when a host binds."""

if __name__ == "__main__":
    main()
