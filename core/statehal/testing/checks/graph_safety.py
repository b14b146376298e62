"""That no method waits for the device, works by the token, or leaves its buffers: what a captured graph needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from statehal.testing.captured import captured, judged
from statehal.testing.check import check
from statehal.testing.operations import Call, Operations
from statehal.testing.target import Target
from statehal.testing.watch import watched

FEW, MANY = 2, 40


@dataclass(frozen=True)
class MethodCase:
    """One call of one method, and how it is judged on this device."""

    call: str
    how: str

    @property
    def features(self) -> frozenset[str]:
        return frozenset({self.call, self.how})


def _own(target: Target, label: str) -> list[str]:
    """Calls of the methods of ``"kv"``, ``"conv"`` or ``"memory"`` that the backend itself provides."""
    return [name for name in Operations(target).calls(1) if name.startswith(label) and name.split()[0] in target.offers]


def _cases(label: str) -> Callable[[Target], Any]:
    def cases(target: Target) -> Any:
        how = "torch operators are counted, and " + ("syncs refused" if _mode(target) else "waiting ones looked for")
        return st.sampled_from([MethodCase(name, how) for name in _own(target, label)])

    return cases


def _mode(target: Target) -> Any:
    """What makes torch refuse to wait for the device, where it can."""
    kind = torch.device(target.device).type
    return None if kind == "cpu" else getattr(torch.get_device_module(kind), "set_sync_debug_mode", None)


def _judge(target: Target, case: MethodCase) -> None:
    made = Operations(target, MANY)
    found: dict[int, list[str]] = {}
    for n in (FEW, MANY):
        call = made.calls(n)[case.call]
        call()  # what is made at the first call only does not count
        names, waits = _without_syncs(target, case, call)
        assert not waits, f"{case.call} waits for the device: {', '.join(dict.fromkeys(waits))}"
        found[n] = names
    few, many = len(found[FEW]), len(found[MANY])
    assert few == many, f"{case.call} runs {few} operators of torch for {FEW} tokens or slots, and {many} for {MANY}"


def _without_syncs(target: Target, case: MethodCase, call: Call) -> tuple[list[str], list[str]]:
    mode = _mode(target)
    if mode is None:
        return watched(call)
    mode("error")
    try:
        return watched(call)
    except RuntimeError as error:
        raise AssertionError(f"{case.call} waits for the device: {error}") from error
    finally:
        mode("default")


@check("graph_safety", needs=("kv.write",), cases=_cases("kv."))
def check_kv_methods_do_not_wait_or_loop(target: Target, case: MethodCase) -> None:
    """No method of ``KVWriter`` waits for the device, nor launches more the more tokens there are."""
    _judge(target, case)


@check("graph_safety", needs=("conv.decode",), cases=_cases("conv."))
def check_conv_methods_do_not_wait_or_loop(target: Target, case: MethodCase) -> None:
    """No method of ``CausalConv1d`` waits for the device, nor launches more the more requests there are."""
    _judge(target, case)


@check("graph_safety", needs=("memory.translate", "memory.host_sync_free"), cases=_cases("memory."))
def check_memory_methods_do_not_wait_or_loop(target: Target, case: MethodCase) -> None:
    """Memory operations that claim ``host_sync_free`` never wait for the device, nor launch more for more ids."""
    _judge(target, case)


OUTS = {"kv.rope_write", "conv.prefill", "conv.decode", "conv.verify", "memory.gather"}
"""Methods that return their ``out``."""


def _out_cases(target: Target) -> Any:
    names = [name for name in Operations(target).calls(1) if name.split()[0] in OUTS & target.offers]
    return st.sampled_from([MethodCase(name, "addresses are compared") for name in names])


@check("graph_safety", needs=(" or ".join(sorted(OUTS)),), cases=_out_cases)
def check_out_buffers_keep_their_addresses(target: Target, case: MethodCase) -> None:
    """A method that is given an ``out`` fills that memory and returns it."""
    made = Operations(target, MANY)
    before = [hex(tensor.data_ptr()) for tensor in made.outs.values()]
    for tensor in made.outs.values():
        tensor.fill_(77)
    result = made.calls(MANY)[case.call]()
    assert result is not None, f"{case.call} returned None instead of its out"
    where = hex(result.data_ptr())
    assert where in before, f"{case.call} returned a tensor at {where}, its out lies at one of {before}"
    left = int((result == 77).sum())
    assert not left, f"{case.call} left {left} of the {result.numel()} elements of its out as they were before"


def _captured_cases(target: Target) -> Any:
    claimed = [label for label in ("kv", "conv", "memory") if f"{label}.graph_capturable" in target.offers]
    promised = {"memory.translate", "memory.update_table", "memory.copy_pages", "memory.zero_pages"}
    names = [
        name
        for label in claimed
        for name in _own(target, f"{label}.")
        if label != "memory" or name.split()[0] in promised
    ]
    return st.sampled_from([MethodCase(name, judged(target)) for name in names])


@check(
    "graph_safety",
    needs=("kv.graph_capturable or conv.graph_capturable or memory.graph_capturable",),
    cases=_captured_cases,
)
def check_replays_follow_their_input_buffers(target: Target, case: MethodCase) -> None:
    """A call that was captured once does, when it is replayed, what a new call does with the buffers' new contents."""
    made = Operations(target, MANY)
    made.fill(1)
    for name, call in made.calls(MANY).items():
        if name.split()[0] in target.providers:
            call()  # so that there are rows and slots to read
    start, call = made.state(), made.calls(MANY)[case.call]
    expected = {}
    for seed in (1, 2, 3):
        made.restore(start)
        expected[seed] = _after(made, seed, call)
    made.restore(start)
    made.fill(1)
    replay = captured(target, call)
    for seed in (1, 2, 3):
        made.restore(start)
        found = _after(made, seed, replay)
        places = zip(PLACES, found, expected[seed], strict=True)
        odd = [place for place, one, two in places if not torch.equal(one, two)]
        if odd and seed == 1 and replay.partial:
            return  # kernels that torch's dispatcher does not see were not recorded; their syncs are judged above
        assert not odd, (
            f"{case.call}, {case.how}: captured with other contents of its inputs, a replay left something else than a "
            f"new call does in {', '.join(odd)}"
        )


PLACES = ("the pool", "the view's rows", "the table", "the pages", "q_out", "out", "ids", "more ids", "gathered rows")
"""What ``Operations.state`` gives, in words."""


def _after(made: Operations, seed: int, run: Callable[[], object]) -> list[torch.Tensor]:
    """Everything that is written when the inputs have these contents."""
    made.fill(seed)
    run()
    return made.state()
