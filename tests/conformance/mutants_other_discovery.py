"""Faults of what a backend says of itself and hands out."""

from collections.abc import Callable
from typing import Any

import torch

from conformance.mutant import Change, Mutant, MutantBackend
from statehal.hookspecs import IDS64, BackendInfo, Probe, hookimpl
from statehal.spec import Latent


class RaisingProbe(MutantBackend):
    """Its probe knows the devices that its author had."""

    @hookimpl
    def statehal_probe(self, device: str) -> Probe:
        return {"cpu": Probe("ready"), "cuda": Probe("unavailable", "no such device")}[device]


class Unready(MutantBackend):
    """It is registered, and is not ready for any device."""

    @hookimpl
    def statehal_probe(self, device: str) -> Probe:
        return Probe("unavailable", "no such device")


class OneDevice(MutantBackend):
    """An argument with a default, which pluggy never passes."""

    @hookimpl
    def statehal_probe(self, device: str = "cpu") -> Probe:
        return Probe("ready")


class Counting(MutantBackend):
    """It says something else at each call."""

    calls = 0

    @hookimpl
    def statehal_backend_info(self) -> BackendInfo:
        self.calls += 1
        return BackendInfo("mutant", frozenset({"cpu"}), priority=self.calls)


def _values_first(made: Any, request: Any) -> Any:
    write = made.write

    def mutated(layer: int, ids: Any, v: Any, k: Any, *, k_scale: Any = None, v_scale: Any = None) -> None:
        write(layer, ids, k, v, k_scale=k_scale, v_scale=v_scale)

    made.write = mutated
    return made


def _positional_out(made: Any, request: Any) -> Any:
    decode = made.decode

    def mutated(layer: int, x: Any, slots: Any, out: Any = None) -> Any:
        return decode(layer, x, slots, out=out)

    made.decode = mutated
    return made


def _without(name: str) -> Any:
    def change(made: Any, request: Any) -> Any:
        setattr(made, name, None)
        return made

    return change


def _not_in_inference_mode(made: Any, request: Any) -> Any:
    write = made.write

    def mutated(*args: Any, **options: Any) -> None:
        if not torch.is_inference_mode_enabled():
            write(*args, **options)

    made.write = mutated
    return made


def _left(unless: Callable[[Any], bool]) -> Change:
    """No answer for some specs: the reference does them."""

    def change(made: Any, request: Any) -> Any:
        spec = request.spec if hasattr(request, "spec") else request.subpool.spec
        return made if unless(spec) else None

    return change


def _no_int8_rope(made: Any, request: Any) -> Any:
    if request.subpool.spec.dtype == "int8":
        made.rope_write = None
    return made


def _misspelt(name: str, wrong: str) -> Change:
    def change(made: Any, request: Any) -> Any:
        setattr(made, wrong, getattr(made, name))
        setattr(made, name, None)
        return made

    return change


SERVED = "discovery/it_serves_what_it_claims"
MISSPELT = "discovery/no_method_is_misspelt"
SIGNATURES = "discovery/methods_have_the_signatures_of_the_contract"
IMPLIED = "discovery/it_has_the_methods_that_its_capabilities_imply"
PROBE = "discovery/its_probe_answers_for_every_device"
MUTANTS = [
    Mutant(
        "written for a newer contract",
        "discovery/it_is_registered_under_its_name",
        lambda: MutantBackend(info={"contract": (0, 99)}),
    ),
    Mutant("a probe that raises for a device that it does not know", PROBE, RaisingProbe),
    Mutant("a probe that is never ready", PROBE, Unready),
    Mutant("another answer at each call", "discovery/what_it_says_of_itself_is_stable", Counting),
    Mutant("a hook whose argument has a default", "discovery/hooks_have_the_signatures_of_the_contract", OneDevice),
    Mutant("a write that takes values first", SIGNATURES, lambda: MutantBackend(kv=_values_first)),
    Mutant("a decode that takes its out by position", SIGNATURES, lambda: MutantBackend(conv=_positional_out)),
    Mutant("trees claimed without a verify", IMPLIED, lambda: MutantBackend(conv=_without("verify"))),
    Mutant("a writer that claims no dtype", IMPLIED, lambda: MutantBackend(info={"capabilities": frozenset()})),
    Mutant(
        "64-bit ids claimed by nobody who takes ids",
        IMPLIED,
        lambda: MutantBackend(
            kv=_left(lambda _: False), conv=_left(lambda _: False), info={"capabilities": frozenset({IDS64})}
        ),
    ),
    Mutant(
        "an int8 store that is left to the reference",
        SERVED,
        lambda: MutantBackend(kv=_left(lambda spec: spec.dtype != "int8")),
    ),
    Mutant("a claimed store without a rope_write", SERVED, lambda: MutantBackend(kv=_no_int8_rope)),
    Mutant(
        "a latent store that is left to the reference",
        SERVED,
        lambda: MutantBackend(kv=_left(lambda spec: not (isinstance(spec, Latent) and spec.dtype == "float8_e5m2"))),
    ),
    Mutant(
        "kept scales that are left to the reference",
        SERVED,
        lambda: MutantBackend(kv=_left(lambda spec: not getattr(spec, "scales", None))),
    ),
    Mutant(
        "scales claimed without a store that has some",
        SERVED,
        lambda: MutantBackend(info={"capabilities": frozenset({"store:bfloat16", "scales:per_token_head"})}),
    ),
    Mutant(
        "a window that is left to the reference",
        SERVED,
        lambda: MutantBackend(conv=_left(lambda spec: spec.dtype != "float16")),
    ),
    Mutant(
        "replay rings that are left to the reference",
        SERVED,
        lambda: MutantBackend(conv=_left(lambda spec: not spec.extra)),
    ),
    Mutant(
        "a claimed store without a layout",
        SERVED,
        lambda: MutantBackend(pool_layout=_left(lambda spec: spec.dtype != "float8_e4m3fn")),
    ),
    Mutant("a layout hook that forgets to return", SERVED, lambda: MutantBackend(pool_layout=_left(lambda _: False))),
    Mutant("a moov instead of a move", MISSPELT, lambda: MutantBackend(kv=_misspelt("move", "moov"))),
    Mutant("a decod instead of a decode", MISSPELT, lambda: MutantBackend(conv=_misspelt("decode", "decod"))),
    Mutant("a gathr instead of a gather", MISSPELT, lambda: MutantBackend(memory=_misspelt("gather", "gathr"))),
    Mutant(
        "a write that is skipped in inference mode",
        "discovery/a_write_in_inference_mode_works",
        lambda: MutantBackend(kv=_not_in_inference_mode),
    ),
]
