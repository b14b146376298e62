"""Routing a model's convolutions to the pool: the functions that its module calls are replaced, and put back."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from statehal.errors import Unsupported
from statehal_transformers.linear_layers import ConvState, RecurrentState


class Route:
    """A function in the place of a module's own, for the states that lie in a pool; other calls go to that.

    Attributes:
        original: the module's own.
        holders: how many ``routed`` blocks are open.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self.holders = 0


class PrefillRoute(Route):
    """``causal_conv1d_fn``."""

    def __call__(
        self,
        hidden_states: Any,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        if not isinstance(hidden_states, ConvState):
            result: torch.Tensor = self.original(hidden_states, weight, bias, activation, **kwargs)
            return result
        for name in ("seq_idx", "cu_seqlens"):
            if kwargs.get(name) is not None:
                raise Unsupported(f"{name} packs several sequences into one row: the pooled cache keeps one in each")
        assert hidden_states.inputs is not None, "a layer hands over what it was given"
        return hidden_states.layer.convolve(hidden_states.inputs, weight, bias, activation)


class UpdateRoute(Route):
    """``causal_conv1d_update``."""

    def __call__(
        self,
        hidden_states: torch.Tensor,
        conv_state: Any,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        if isinstance(conv_state, ConvState):
            return conv_state.layer.convolve(hidden_states, weight, bias, activation)
        result: torch.Tensor = self.original(hidden_states, conv_state, weight, bias, activation, **kwargs)
        return result


class StateUpdateRoute(Route):
    """A function that changes a recurrent state in place: what it left is written into the pool."""

    def __call__(self, state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = self.original(state, *args, **kwargs)
        if isinstance(state, RecurrentState):
            state.home.update_recurrent_state(state)
        return result


ROUTES: dict[str, type[Route]] = {
    "causal_conv1d_fn": PrefillRoute,
    "causal_conv1d_update": UpdateRoute,
    "mamba2_selective_state_update": StateUpdateRoute,
}
"""The names by which models call these functions, in the module that defines their layers."""


def conv_modules(model: torch.nn.Module) -> tuple[ModuleType, ...]:
    """The modules with functions of those names in which the model's layers are defined."""
    modules = {sys.modules[type(layer).__module__] for layer in model.modules()}
    return tuple(module for module in modules if "causal_conv1d_fn" in vars(module))


@contextmanager
def routed(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Route the functions of these modules for the length of a block, also where it ends in an exception.

    The functions are the process's own: a call with tensors, from another model or thread, goes to the original.
    """
    taken: list[tuple[ModuleType, str, Route]] = []
    try:
        for module in modules:
            for name in vars(module).keys() & ROUTES.keys():
                found = vars(module)[name]
                route = found if isinstance(found, Route) else ROUTES[name](found)
                route.holders += 1
                taken.append((module, name, route))
                setattr(module, name, route)
        yield
    finally:
        for module, name, route in taken:
            route.holders -= 1
            if not route.holders:
                setattr(module, name, route.original)
