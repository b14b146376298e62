"""The operators of namespace ``statehal``: schema, implementation and fake of each, registered once a process.

All take first the pool's buffer (uint8 ``[total_bytes]``) and the number of a handle. Ids are the tensors of
``KernelIds``, one an address form; an empty list stands for ids that were not given. ``layer`` is a ``SymInt``, so
that one graph may serve many layers.
"""

import functools
import threading
from typing import Any

import torch

from statehal.binding.library import conv_operators, kv_operators, refusals

SCHEMAS = kv_operators.SCHEMAS | conv_operators.SCHEMAS | refusals.SCHEMAS
OPERATORS = kv_operators.IMPLEMENTATIONS | conv_operators.IMPLEMENTATIONS | refusals.IMPLEMENTATIONS
FAKES = conv_operators.FAKES

_registering = threading.Lock()


def register() -> None:
    """Register all operators, if that has not been done yet."""
    with _registering:
        _register()


@functools.cache
def _register() -> torch.library.Library:
    library = torch.library.Library("statehal", "DEF")  # kept by the cache: operators die with it
    for name, implementation in OPERATORS.items():
        library.define(name + SCHEMAS[name])
        library.impl(name, implementation, "CompositeExplicitAutograd")
        torch.library.register_fake(f"statehal::{name}", FAKES.get(name, _nothing), lib=library)
    return library


def _nothing(*args: Any, **kwargs: Any) -> None:
    """The fake of an operator that returns nothing: its outputs are arguments."""
