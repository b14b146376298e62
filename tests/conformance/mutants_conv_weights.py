"""Faults of weights that change, and of how sums are rounded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conformance.conv_faults import convolution, method, mutant, sums
from statehal.hookspecs import Prepared


def _copied(made: Any, prepare: Any, layer: int, weight: Tensor, bias: Any = None, **more: Any) -> None:
    """Weights are cast when they are prepared, and the cast is kept for ever."""
    prepare(layer, weight.clone(), None if bias is None else bias.clone(), **more)


def _heard_once(made: Any, prepare: Any, layer: int, *args: Any, **more: Any) -> None:
    if layer not in made._weights:
        prepare(layer, *args, **more)


def _by_memory(made: Any, prepare: Any, layer: int, weight: Tensor, bias: Any = None, **more: Any) -> None:
    """A cast that is made again only when the weight lies elsewhere."""
    prepare(layer, weight, bias, **more)
    kept = made._weights[layer]
    made._weights[layer] = replace(kept, tensors=_Cached(kept.tensors, lambda: weight.data_ptr()))


def _bias_kept(made: Any, prepare: Any, layer: int, weight: Tensor, bias: Any = None, **more: Any) -> None:
    """A bias that was left out is the one of before."""
    before = made._weights[layer].tensors.get()[1] if layer in made._weights else None
    prepare(layer, weight, before if bias is None else bias, **more)


class _Cached:
    """What was prepared, as long as a key is the same."""

    def __init__(self, prepared: Prepared[Any], key: Callable[[], int]) -> None:
        self.prepared, self.key, self.seen = prepared, key, -1
        self.value: Any = None

    def get(self) -> Any:
        if self.key() != self.seen:
            weight, bias = self.prepared.get()
            self.seen, self.value = self.key(), (weight.clone(), None if bias is None else bias.clone())
        return self.value


def _narrow(rows: Tensor, tap: Tensor) -> Tensor:
    """The product in the dtype of the inputs, as ``x * weight`` gives it where neither is widened."""
    return (rows * tap.to(rows.dtype)).double()


def _truncated(packed: Any, x: Tensor, *args: Any) -> Tensor:
    """The upper half of an fp32 sum: within a unit in the last place, and the nearest value half of the time."""
    wide: Tensor = convolution()(packed, x.float(), *args)
    return (wide.view(torch.int32) & -(1 << 16)).view(torch.float32).to(x.dtype)


AS_THEY_ARE = "weights_are_used_as_they_are"

MUTANTS = [
    mutant("weights are copied when they are prepared", f"conv_prefill/{AS_THEY_ARE}", method("prepare", _copied)),
    mutant("a second prepare is not heard", f"conv_decode/{AS_THEY_ARE}", method("prepare", _heard_once)),
    mutant("a cast goes stale in its memory", f"conv_verify/{AS_THEY_ARE}", method("prepare", _by_memory)),
    mutant("a bias outlives its weight", f"conv_prefill/{AS_THEY_ARE}", method("prepare", _bias_kept)),
    mutant("bfloat16 products are rounded before the sum", "conv_rounding/bfloat16_sums_are_rounded_once",
           sums(convolution(product=_narrow))),
    mutant("bfloat16 outputs are truncated", "conv_rounding/bfloat16_sums_are_rounded_once", sums(_truncated)),
    mutant("float16 sums are kept in float16", "conv_rounding/float16_sums_are_rounded_once",
           sums(convolution(dtype=torch.float16))),
    mutant("float32 weights are rounded to bfloat16", "conv_rounding/float32_sums_are_fp32_or_wider",
           sums(convolution(product=lambda rows, tap: rows.double() * tap.bfloat16().double()))),
]  # fmt: skip
