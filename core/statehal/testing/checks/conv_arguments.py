"""Arguments of conv methods that do not fit: errors that name them, and a pool left as it was."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from statehal.hookspecs.capabilities import TRACKING
from statehal.testing.check import check
from statehal.testing.conv.calls import Call, calls, slots_of
from statehal.testing.conv.host import Host
from statehal.testing.conv.misfits import NO_INDEX, id_misfits, misfits, refused, row_misfits, said
from statehal.testing.conv.rig import Rig, same
from statehal.testing.conv.setups import Setup, setups, windows
from statehal.testing.target import Target

STEPS = "conv.prefill or conv.decode or conv.verify"
EVERY_WIDTH = tuple(f"width {width}" for width in range(2, 9))
FEATURES = (
    "drafts", "one token a step", "several layers", "a view of a bigger pool", "int32", "int64",
    *(f"window {dtype} if window:{dtype}" for dtype in ("float32", "bfloat16", "float16")),
)  # fmt: skip


def _setups(target: Target) -> Any:
    """Without the binding's own checks, so that it is the backend that refuses."""
    return setups(windows(target)).map(lambda setup: replace(setup, checking=False))


def _rig(target: Target, setup: Setup) -> Rig:
    """Slots with something in them: what a store would change is there."""
    rig = Rig(target, setup, slots_of(setup.spec.verify_tokens))
    slots = range(1, len(rig.pages))
    x = target.on_device(rig.values(len(slots), rig.spec.channels))
    for layer in rig.spec.layers:
        rig.conv.prefill(layer, x, rig.ints([*range(len(slots) + 1)]), rig.pick(slots))
    rig.commit(slots)
    Host(rig).put({slot: slot for slot in slots})
    return rig


def _refuses(rig: Rig, call: Call, name: str, bad: Iterable[Any], *others: str) -> None:
    """A call with each of these values of an argument; ``others`` are as much to blame."""
    for value in bad:
        right = f" for {said(call.given[name])}" if name in call.given else ""
        what = f"{call.name}, given {name} {said(value)}{right},"
        refused(rig, what, sorted({name, *others}), partial(call, **{name: value}))


@check("conv_arguments", needs=("conv.prepare",), cases=_setups, features=(*EVERY_WIDTH, *FEATURES, "bias", "no bias"))
def check_weights_that_do_not_fit_are_refused(target: Target, setup: Setup) -> None:
    """A weight, bias or activation that does not fit, another width included, is an ArgumentError that names it."""
    rig = _rig(target, setup)
    layer, channels = rig.spec.layers[0], rig.spec.channels
    weight, shift = rig.weights[layer][0], target.on_device(rig.values(channels, dtype=setup.weight_dtype))
    call = Call("prepare", rig.conv.prepare, {"layer": layer, "weight": weight, "bias": shift})
    x, first = target.on_device(rig.values(3, channels)), rig.pick([1])
    prompt: Callable[[], torch.Tensor] = partial(rig.conv.prefill, layer, x, rig.ints([0, 3]), first)
    before = prompt()
    widths = [torch.ones(channels, width, dtype=weight.dtype) for width in (1, 9)]
    wrong = [*(target.on_device(one) for one in widths), weight[:, None], *misfits(weight, (0, 1), (torch.int64,))]
    _refuses(rig, call, "weight", wrong)
    _refuses(rig, call, "bias", misfits(shift, (0,), (torch.int64,)))
    _refuses(rig, call, "activation", ("gelu", "relu"))
    assert same(prompt(), before), "after a prepare that was refused the weights are not those of before"
    call()


@check(
    "conv_arguments",
    needs=(STEPS,),
    cases=_setups,
    features=(*FEATURES, "x narrower than the window if window:float32"),
)
def check_inputs_and_outputs_that_do_not_fit_are_refused(target: Target, setup: Setup) -> None:
    """An x or out of another shape, dtype, device or stride is an ArgumentError that names it, before a store."""
    rig = _rig(target, setup)
    window = getattr(torch, setup.spec.dtype)
    held = {window, torch.bfloat16, torch.float16} if window == torch.float32 else {window}
    for call in calls(rig):
        if "x" not in call.given:
            continue
        x = call.given["x"]
        axes = (1,) if "query_start_loc" in call.given else (0, 1)
        _refuses(rig, call, "x", row_misfits(x, axes, held))
        for out in row_misfits(torch.ones_like(x), (0, 1), {x.dtype}):
            _refuses(rig, call, "out", [out])
            assert out.is_meta or out.eq(1).all(), f"{call.name} wrote to an out that it refused: {said(out)}"
        call(out=torch.ones_like(x))


@check("conv_arguments", needs=(STEPS,), cases=_setups, features=FEATURES)
def check_layers_are_known_and_prepared(target: Target, setup: Setup) -> None:
    """A layer that the sub-pool does not have, or that has no weights yet, is an ArgumentError, before a store."""
    rig = _rig(target, setup)
    first, *rest = rig.spec.layers
    unknown = (-1, max(rig.spec.layers) + 1)
    if "conv.prepare" in target.offers:
        call = Call("prepare", rig.conv.prepare, {"layer": first, "weight": rig.weights[first][0]})
        _refuses(rig, call, "layer", unknown)
    bare = target.binding().conv(rig.sub)
    for layer in rest:
        bare.prepare(layer, *rig.weights[layer])
    for call in calls(rig):
        if "layer" in call.given:
            _refuses(rig, call, "layer", unknown)
            unprepared = replace(call, run=getattr(bare, call.method))
            refused(rig, f"{call.name} of a layer without weights", ("layer", "prepare"), unprepared)
            call()


INDEX = {
    "query_start_loc": (0,), "has_initial_state": (0,), "parents": (0,), "accepted": (0,), "path": (0, 1),
    "track_accepted": (0,),
}  # fmt: skip
"""Index tensors and flags, with the axes on which other arguments say how many there are."""


@check("conv_arguments", needs=(f"{STEPS} or conv.commit",), cases=_setups, features=FEATURES)
def check_index_tensors_that_do_not_fit_are_refused(target: Target, setup: Setup) -> None:
    """An index tensor or flags of another shape, dtype or device is an ArgumentError that names it, before a store."""
    rig = _rig(target, setup)
    for call in calls(rig):
        for name, axes in INDEX.items():
            if name in call.given:
                dtypes = (torch.int64, torch.float32) if name == "has_initial_state" else NO_INDEX
                _refuses(rig, call, name, misfits(call.given[name], axes, dtypes))
        if "snapshots" in call.given:
            sequence, end, slots = call.given["snapshots"]
            bad = [(one, end, slots) for one in misfits(sequence, (0,), NO_INDEX)]
            bad += [(sequence, one, slots) for one in misfits(end, (0,), NO_INDEX)]
            bad += [(sequence, end, one) for one in id_misfits(slots, (0,))]
            _refuses(rig, call, "snapshots", [*bad, (sequence, end)], "sequence", "token_end")
        call()


SLOTS = {"slots": (0,), "initial_slots": (0,), "src": (0,), "dst": (0,), "state_slots": (0, 1), "track_slots": (0,)}
"""Slots, with the axes on which other arguments say how many there are."""


@check(
    "conv_arguments",
    needs=(f"{STEPS} or conv.commit or conv.copy_slots or conv.zero_slots or conv.read_state",),
    cases=_setups,
    features=(*FEATURES, "recurrent state", "no recurrent state"),
)
def check_slots_that_do_not_fit_are_refused(target: Target, setup: Setup) -> None:
    """Slots in another number or shape than the method takes are an ArgumentError that names them, before a store."""
    rig = _rig(target, setup)
    for call in calls(rig):
        others = call.given.keys() - {"layer"}  # two that disagree: either may be named
        for name, axes in SLOTS.items():
            if name in call.given:
                free = call.method in ("zero_slots", "read_state")
                _refuses(rig, call, name, id_misfits(call.given[name], () if free else axes), *others)
        if "initial_slots" in call.given:
            text = f"{call.name} without has_initial_state"
            refused(rig, text, ("initial_slots", "has_initial_state"), partial(call, has_initial_state=None))
        call()


@check(
    "conv_arguments",
    needs=("conv.commit", TRACKING),
    cases=_setups,
    features=(*FEATURES, "recurrent state", "no recurrent state"),
)
def check_tracked_slots_come_with_their_counts(target: Target, setup: Setup) -> None:
    """Tracked slots without counts, or without ``state_slots`` where they need them, are an ArgumentError."""
    rig = _rig(target, setup)
    (call,) = (one for one in calls(rig) if "track_slots" in one.given)
    for name in ("track_slots", "track_accepted"):
        half = partial(call, **{name: None})
        refused(rig, f"{call.name} without {name}", ("track_slots", "track_accepted"), half)
    if setup.spec.state and setup.spec.verify_tokens > 1:
        refused(rig, f"{call.name} without state_slots", ("state_slots",), partial(call, state_slots=None))
    else:
        call(state_slots=None)
    call()
