"""Conv methods that refuse arguments too late, without a name or not at all."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conformance.conv_faults import method, mutant
from conformance.conv_misfits import axes, dtypes, sizes
from statehal.errors import ArgumentError
from statehal.hookspecs import Prepared


def _any_activation(made: Any, prepare: Any, *args: Any, activation: Any = None, **more: Any) -> None:
    prepare(*args, activation=activation if activation == "silu" else None, **more)


def _forgets(made: Any, prepare: Any, layer: int, *args: Any, **more: Any) -> None:
    """The weights of before are gone when it finds that those given do not fit."""
    kept = made._weights.get(layer)
    if kept is not None:
        zeros = tuple(None if one is None else torch.zeros_like(one) for one in kept.tensors.get())
        made._weights[layer] = replace(kept, tensors=Prepared(lambda: zeros))
    prepare(layer, *args, **more)


def _cast_out(made: Any, run: Any, *args: Any, out: Tensor | None = None, **more: Any) -> Any:
    if out is None or out.dtype == getattr(torch, made._spec.dtype) or out.is_meta:
        return run(*args, out=out, **more)
    return out.copy_(run(*args, **more))


def _part_of_out(made: Any, run: Any, layer: int, x: Tensor, *args: Any, out: Tensor | None = None, **more: Any) -> Any:
    """Only the rows that it needs."""
    if out is not None and out.shape[1:] == x.shape[1:] and out.shape[0] > x.shape[0]:
        out = out[: x.shape[0]]
    return run(layer, x, *args, out=out, **more)


def _early_out(made: Any, run: Any, *args: Any, out: Tensor | None = None, **more: Any) -> Any:
    if out is not None:
        out.zero_()
    return run(*args, out=out, **more)


def _late(made: Any, run: Any, layer: int, x: Tensor, slots: Any, **more: Any) -> Any:
    """The window has the token before it is looked at."""
    if x.dtype != getattr(torch, made._spec.dtype) and not x.is_meta:
        run(layer, x.to(getattr(torch, made._spec.dtype)), slots)
    return run(layer, x, slots, **more)


def _nameless(made: Any, run: Any, *args: Any, **more: Any) -> Any:
    try:
        return run(*args, **more)
    except ArgumentError as error:
        raise ArgumentError("a shape does not fit") from error


def _other_error(made: Any, run: Any, *args: Any, **more: Any) -> Any:
    try:
        return run(*args, **more)
    except ArgumentError as error:
        raise RuntimeError(str(error)) from error


def _nearest_layer(made: Any, run: Any, layer: int, *args: Any, **more: Any) -> Any:
    return run(layer if layer in made._spec.layers else made._spec.layers[0], *args, **more)


def _identity(made: Any, run: Any, layer: int, *args: Any, **more: Any) -> Any:
    """A layer without weights has those that change nothing."""
    if layer in made._spec.layers and layer not in made._weights:
        weight = torch.zeros(made._spec.channels, made._spec.width)
        weight[:, -1] = 1
        made.prepare(layer, weight)
    return run(layer, *args, **more)


def _snapshots(n: int, change: Any) -> Any:
    """Part ``n`` of snapshots is changed, where there are three."""

    def fault(made: Any, run: Any, *args: Any, snapshots: Any = None, **more: Any) -> Any:
        if snapshots is not None and len(snapshots) == 3:
            parts = list(snapshots)
            parts[n] = change(parts[n], (-1,) if n == 2 else tuple(parts[2].shape), torch.int64)
            snapshots = tuple(parts)
        return run(*args, snapshots=snapshots, **more)

    return method("prefill", fault)


def _few_parts(made: Any, run: Any, *args: Any, snapshots: Any = None, **more: Any) -> Any:
    """Snapshots without slots save nothing."""
    return run(*args, snapshots=None if snapshots is not None and len(snapshots) < 3 else snapshots, **more)


def _as_many_as_there_are(made: Any, run: Any, layer: int, x: Tensor, slots: Any, **more: Any) -> Any:
    """Rows of x without a slot give zeros."""
    count = slots.shape[0]
    if len(slots.shape) != 1 or x.dim() != 2 or count >= x.shape[0]:
        return run(layer, x, slots, **more)
    return torch.cat([run(layer, x[:count], slots, **more), torch.zeros_like(x[count:])])


def _shorter(made: Any, run: Any, src: Any, dst: Any) -> Any:
    """As far as both go."""
    count = min(src.shape[0], dst.shape[0])
    return run(src[:count], dst[:count])


def _drops(argument: str, other: str, name: str = "commit") -> Any:
    """An argument without its other half is ignored."""

    def fault(made: Any, run: Any, *args: Any, **more: Any) -> Any:
        return run(
            *args, **{name: one for name, one in more.items() if name != argument or more.get(other) is not None}
        )

    return method(name, fault)


def _own_rows(made: Any, run: Any, slots: Any, accepted: Tensor, **more: Any) -> Any:
    """Tracked slots get the recurrent rows that the slots have."""
    if more.get("track_slots") is not None and more.get("state_slots") is None:
        drafts = made._spec.verify_tokens
        more["state_slots"] = slots[torch.arange(len(slots)).repeat_interleave(drafts)].reshape(-1, drafts)
    return run(slots, accepted, **more)


WEIGHTS = "conv_arguments/weights_that_do_not_fit_are_refused"
INPUTS = "conv_arguments/inputs_and_outputs_that_do_not_fit_are_refused"
LAYERS = "conv_arguments/layers_are_known_and_prepared"
INDEX = "conv_arguments/index_tensors_that_do_not_fit_are_refused"
SLOTS = "conv_arguments/slots_that_do_not_fit_are_refused"
TRACKED = "conv_arguments/tracked_slots_come_with_their_counts"

MUTANTS = [
    mutant("prepare takes any activation", WEIGHTS, method("prepare", _any_activation)),
    mutant("prepare forgets the weights of before when it refuses", WEIGHTS, method("prepare", _forgets)),
    mutant("decode casts into an out of another dtype", INPUTS, method("decode", _cast_out)),
    mutant("verify fills a part of an out that is too long", INPUTS, method("verify", _part_of_out)),
    mutant("prefill clears an out that it refuses", INPUTS, method("prefill", _early_out)),
    mutant("decode refuses an x that is in the window already", INPUTS, method("decode", _late)),
    mutant("verify does not name what it refuses", INPUTS, method("verify", _nameless)),
    mutant("prefill refuses with a RuntimeError", INPUTS, method("prefill", _other_error)),
    mutant("prepare takes an unknown layer for the first", LAYERS, method("prepare", _nearest_layer)),
    mutant("decode takes an unknown layer for the first", LAYERS, method("decode", _nearest_layer)),
    mutant("prefill runs a layer without weights", LAYERS, method("prefill", _identity)),
    mutant("a snapshot's sequences are of another size", INDEX, _snapshots(0, sizes)),
    mutant("a snapshot's token ends are of another dtype", INDEX, _snapshots(1, dtypes)),
    mutant("a snapshot's slots are of another number of axes", INDEX, _snapshots(2, axes)),
    mutant("snapshots without slots are ignored", INDEX, method("prefill", _few_parts)),
    mutant("decode leaves rows without a slot out", SLOTS, method("decode", _as_many_as_there_are)),
    mutant("copy_slots copies as many as both have", SLOTS, method("copy_slots", _shorter)),
    mutant("initial slots without flags are ignored", SLOTS, _drops("initial_slots", "has_initial_state", "prefill")),
    mutant("tracked slots without counts are ignored", TRACKED, _drops("track_slots", "track_accepted")),
    mutant("tracked counts without slots are ignored", TRACKED, _drops("track_accepted", "track_slots")),
    mutant("tracked slots get the recurrent rows of before", TRACKED, method("commit", _own_rows)),
]
