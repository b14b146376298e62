"""Ways of putting one fault into the reference's conv operations."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from conformance.mutant import Mutant, MutantBackend
from statehal.reference import causal_conv1d as module
from statehal.reference import checkpoints
from statehal.reference.rounding import round_once

STEPS = ("prefill", "decode", "verify")


def mutant(name: str, check: str, change: Callable[[Any], None]) -> Mutant:
    """A mutant whose conv operations ``change`` has been at."""

    def changed(made: Any, request: Any) -> Any:
        change(made)
        return made

    return Mutant(name, check, lambda: MutantBackend(conv=changed))


def method(name: str, fault: Callable[..., Any]) -> Callable[[Any], None]:
    """Replace a method by ``fault(made, original, *arguments)``."""

    def change(made: Any) -> None:
        original = getattr(made, name)
        setattr(made, name, lambda *args, **options: fault(made, original, *args, **options))

    return change


def patched(target: Any, attribute: str, value: Any, *names: str) -> Callable[[Any], None]:
    """Let methods, all steps by default, run with something of the reference's modules replaced."""

    def change(made: Any) -> None:
        for name in names or STEPS:
            original = getattr(made, name)

            def call(*args: Any, original: Any = original, **options: Any) -> Any:
                with patch.object(target, attribute, value):
                    return original(*args, **options)

            setattr(made, name, call)

    return change


def sums(value: Any, *names: str) -> Callable[[Any], None]:
    """Let methods convolve otherwise."""
    return patched(module, "convolve", value, *names)


def stored(attribute: str, value: Any, *names: str) -> Callable[[Any], None]:
    """Let methods keep checkpoints otherwise."""
    return patched(checkpoints, attribute, value, *names)


def convolution(
    *,
    product: Callable[[Tensor, Tensor], Tensor] = lambda rows, tap: rows.double() * tap,
    first: Callable[[int], int] = lambda width: 0,
    dtype: torch.dtype = torch.float64,
    bias: bool = True,
    silu_first: bool = False,
    parents_count: bool = True,
) -> Any:
    """A convolution with a fault: other products, taps that are left out, a narrow sum, no bias, an early silu."""

    def convolve(packed: Any, x: Tensor, history: Tensor, weights: Any, parents: Tensor | None = None) -> Tensor:
        weight, shift = weights.taps()
        width = weight.shape[1]
        total = torch.zeros(x.shape, dtype=dtype)
        places = list(packed.back(width, parents if parents_count else None))
        for tap in range(first(width), width):
            rows = packed.rows(x, history, packed.sequence, places[width - 1 - tap])
            total = (total + product(rows, weight[:, tap])).to(dtype)
        if weights.activation == "silu" and silu_first:
            total = total / (1 + torch.exp(-total))
        if shift is not None and bias:
            total = (total + shift).to(dtype)
        if weights.activation == "silu" and not silu_first:
            total = total / (1 + torch.exp(-total))
        return round_once(total.double(), x.dtype)

    return convolve


FP32 = convolution(product=lambda rows, tap: (rows.float() * tap.float()).flip(0).flip(0), dtype=torch.float32)
"""Sums in fp32: within the contract, and not the bits of the reference's other methods."""
