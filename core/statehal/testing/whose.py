"""Which methods and layouts are a backend's own, and why the others are not."""

from collections.abc import Iterable
from typing import Any

from statehal.binding.answers import misspelt
from statehal.hookspecs import (
    CausalConv1dRequest,
    ConvStateLayoutRequest,
    KVWriteRequest,
    MemoryOpsRequest,
    PoolLayoutRequest,
)
from statehal.spec import Attention, ConvRecurrent, Spec
from statehal.testing.target import ROWS, Target

HOOKS = {
    "layout.tokens": "statehal_pool_layout",
    "layout.slots": "statehal_conv_state_layout",
    "kv": "statehal_fused_kv_write",
    "conv": "statehal_causal_conv1d",
    "memory": "statehal_memory_ops",
}
"""The hook that answers with a layout, or with the methods that begin with a label."""


def hook_of(name: str) -> str:
    """The hook of a method or a layout: of ``"kv.write"`` that is ``statehal_fused_kv_write``."""
    return HOOKS.get(name) or HOOKS[name.split(".")[0]]


def providers(target: Target, spec: Spec) -> dict[str, str]:
    """Who provides the layout and each method of a sub-pool, of those that its rows have a use for."""
    hal = target.binding()
    described = hal.describe(target.pool([spec], tokens=16, page_size=16))
    found = {f"layout.{spec.kind}": described.layouts[spec.name]}
    for name, provider in described.methods.items():
        method = name.removeprefix(f"{spec.name}: ")
        if method != name and ROWS.get(method, type(spec)) is type(spec):
            found[method] = provider
    return found


def own(target: Target, spec: Spec) -> set[str]:
    """Those of them that the backend or an overriding plugin provides."""
    mine = {target.backend, *target.registry.overrides}
    return {name for name, provider in providers(target, spec).items() if not mine.isdisjoint(provider.split(", "))}


def why(target: Target, names: Iterable[str], spec: Spec) -> str:
    """Why these methods of one hook, or this layout, are not the backend's own for a sub-pool."""
    names = sorted(names)
    hook = hook_of(names[0])
    asked = [one for one in target.registry.providers(hook, target.backend) if one.name == target.backend]
    if not asked:
        return f"it has no {hook}"
    answer = asked[0].call(_request(target, hook, spec))
    where = "" if hook == HOOKS["memory"] else f" for {_text(target, hook, spec)}"
    if answer is None:
        return f"its {hook} answered None{where}"
    lacking = ", ".join(name.split(".")[1] for name in names)
    hints = "".join(f"; {objection}" for objection in misspelt(hook, answer))
    return f"its {hook} answered a {type(answer).__name__}{where}, which has no {lacking}{hints}"


def explained(target: Target, need: str) -> str:
    """Why the backend does not offer what a check needs: one of some methods, or of some tags."""
    methods = [name for name in need.split(" or ") if name in target.providers]
    if not methods:
        return f"{need} is not claimed"
    kv, mla, conv = target.samples()
    method = methods[0]
    spec: Spec = conv if "conv." in method or method == "layout.slots" else mla if method == "kv.write_latent" else kv
    return f"{method} is done by {target.providers[method]}, because {why(target, [method], spec)}"


def _request(target: Target, hook: str, spec: Spec) -> Any:
    if hook == HOOKS["memory"]:
        return MemoryOpsRequest(target.device)
    if hook == HOOKS["layout.tokens"]:
        return PoolLayoutRequest(spec, 16, target.device)
    if hook == HOOKS["layout.slots"]:
        assert isinstance(spec, ConvRecurrent)
        return ConvStateLayoutRequest(spec, target.device)
    make = KVWriteRequest if hook == HOOKS["kv"] else CausalConv1dRequest
    return make(target.pool([spec], tokens=16, page_size=16)[spec.name], target.device)


def _text(target: Target, hook: str, spec: Any) -> str:
    article = "an" if isinstance(spec, Attention) else "a"
    text = f"{article} {type(spec).__name__} sub-pool of {spec.dtype}"
    text += " with scales" if getattr(spec, "scales", None) else ""
    text += "".join(f" with a {extra.name} ring" for extra in spec.extra)
    if "layout" in hook:
        return text
    return f"{text} in the layout of {providers(target, spec)[f'layout.{spec.kind}']!r}"
