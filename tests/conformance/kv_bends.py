"""KV methods that take what does not fit: arguments are bent until the reference's own method takes them."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.kv_faults import method
from conformance.mutant import MutantBackend
from statehal.spec import Latent

Bend = Callable[[Any, dict[str, Any], Any], Any]
"""Of an argument, all of them by name, and the spec: the argument as the right method takes it."""


def bent(name: str, **bends: Bend) -> Callable[[], MutantBackend]:
    """A backend whose method bends some of its arguments before it looks at them."""

    def change(made: Any, request: Any, run: Any) -> Any:
        signature = inspect.signature(run)

        def mutated(*args: Any, **options: Any) -> Any:
            given = dict(signature.bind(*args, **options).arguments)
            for argument, bend in bends.items():
                if given.get(argument) is not None:
                    given[argument] = bend(given[argument], given, request.subpool.spec)
            return run(**given)

        return mutated

    return method(name, change)


def shape_due(name: str, given: dict[str, Any], spec: Any) -> tuple[int, ...]:
    """The shape that an argument should have."""
    count = given["ids"].shape.numel()
    if isinstance(spec, Latent):
        rank, rope = spec.kv_lora_rank, spec.qk_rope_head_dim
        return {"kv_c": (count, rank), "k_pe": (count, rope), "positions": (count,), "norm": (rank,)}[name]
    heads, dim = spec.kv_heads, spec.head_dim
    q = (count, given["q"].shape[1] if "q" in given and given["q"].dim() > 1 else 1, dim)
    k = (count, heads, dim)
    places = (3, count) if given.get("rope_sections") else (count,)
    return {
        "q": q,
        "k": k,
        "v": (count, heads, spec.v_head_dim or dim),
        "positions": places,
        "q_norm": (dim,),
        "k_norm": (dim,),
        "q_out": q,
        "k_out": k,
    }[name]


def any_shape(name: str) -> Bend:
    """As many elements as are due are read from the first on; what is missing is zero."""

    def bend(value: Tensor, given: dict[str, Any], spec: Any) -> Tensor:
        due = shape_due(name, given, spec)
        if tuple(value.shape) == due or value.device.type == "meta":
            return value
        room = torch.zeros(due, dtype=value.dtype)
        count = min(room.numel(), value.numel())
        room.view(-1)[:count] = value.reshape(-1)[:count]
        return room

    return bend


def any_dtype(name: str) -> Bend:
    """The values are cast."""
    due = {"positions": torch.int64, "norm": torch.float32, "q_norm": torch.float32, "k_norm": torch.float32}
    return lambda value, given, spec: value.to(due.get(name) or getattr(torch, spec.dtype))
