"""What a hook answers, before the binding has looked at it: a bad answer is to be judged, not to be refused."""

from typing import Any

from statehal.hookspecs import ConvStateLayoutRequest, PoolLayoutRequest
from statehal.spec import ConvRecurrent, Spec
from statehal.testing.target import Target


def layout_answer(target: Target, spec: Spec, page_size: int) -> tuple[str, Any]:
    """Who answers the layout hook for a spec first, and what: a ``PoolLayout``, or a ``ConvStateLayout`` for slots."""
    if isinstance(spec, ConvRecurrent):
        return _first(target, "statehal_conv_state_layout", ConvStateLayoutRequest(spec, target.device))
    return _first(target, "statehal_pool_layout", PoolLayoutRequest(spec, page_size, target.device))


def _first(target: Target, hook: str, request: object) -> tuple[str, Any]:
    asked = target.registry.providers(hook, target.backend)
    for provider in asked:
        answer = provider.call(request)
        if answer is not None:
            return provider.name, answer
    raise AssertionError(f"nobody of {[one.name for one in asked]} answered {hook} for {request}")
