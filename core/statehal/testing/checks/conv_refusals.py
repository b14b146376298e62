"""What conv methods refuse, and that they have changed nothing when they do."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from statehal.errors import StaleIds, Unsupported, WrongIdSpace
from statehal.pool import StatePool
from statehal.spec import Attention, ConvRecurrent
from statehal.testing.check import check
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.target import Target

METHODS = ("prefill", "decode", "verify", "commit", "copy_slots", "zero_slots", "read_state")
ANY_METHOD = " or ".join(f"conv.{name}" for name in METHODS)
OPTIONAL = ("prefill initial_slots", "commit state_slots", "commit track_slots")
"""Arguments that may be ``None``."""


def _pool(target: Target) -> StatePool:
    """Slots in use of two sub-pools, and some attention tokens."""
    dtype = target.claimed("window:")
    specs = [
        ConvRecurrent("conv", (2, 5), 16, 4, dtype, verify_tokens=2),
        ConvRecurrent("other", (7,), 24, 3, dtype),
        Attention("kv", (0,), 1, 8, "float32"),
    ]
    return target.pool(specs, tokens=64, requests=9, page_size=4, waste_limit=0.9)


def _calls(target: Target, pool: StatePool, right: Any, ids: Any) -> Mapping[str, Callable[[], Any]]:
    """Each method that the backend offers, with ``ids`` (two slots) wherever it takes slots."""
    conv, dtype = target.binding().conv(pool["conv"]), getattr(torch, target.claimed("window:"))
    for layer in (2, 5):
        conv.prepare(layer, target.on_device(torch.ones(16, 4)))
    x = target.on_device(torch.ones(4, 16, dtype=dtype))
    ends, ones = target.on_device(torch.tensor([0, 1, 2])), target.on_device(torch.ones(2, dtype=torch.int64))
    flags = ones.bool()
    points = ones * 0, ones, ids
    calls: dict[str, Callable[[], Any]] = {
        "prefill": lambda: conv.prefill(2, x[:2], ends, ids),
        "prefill initial_slots": lambda: conv.prefill(2, x[:2], ends, right, flags, initial_slots=ids),
        "decode": lambda: conv.decode(2, x[:2], ids),
        "verify": lambda: conv.verify(2, x, ids),
        "commit": lambda: conv.commit(ids, ones),
        "commit state_slots": lambda: conv.commit(right, ones, state_slots=_twice(ids)),
        "copy_slots src": lambda: conv.copy_slots(ids, right),
        "copy_slots dst": lambda: conv.copy_slots(right, ids),
        "zero_slots": lambda: conv.zero_slots(ids),
        "read_state": lambda: conv.read_state(ids),
    }
    if "snapshots" in target.offers:
        calls["prefill snapshots"] = lambda: conv.prefill(2, x[:2], ends, right, snapshots=points)
    if "tracking" in target.offers:
        calls["commit track_slots"] = lambda: conv.commit(right, ones, track_slots=ids, track_accepted=ones)
    return {name: call for name, call in calls.items() if f"conv.{name.split()[0]}" in target.offers}


def _twice(ids: Any) -> Any:
    """``[2, 2]`` where the ids can be put into that shape."""
    return ids[[0, 0, 1, 1]].reshape(2, 2) if hasattr(ids, "space") else ids


@check("conv_refusals", needs=(ANY_METHOD,))
def check_methods_take_slots_of_their_own_space(target: Target) -> None:
    """Slots are kernel ids of pages of their own sub-pool; anything else raises before a byte is changed."""
    pool = _pool(target)
    handle, others, tokens = pool.alloc(4, "conv"), pool.alloc(2, "other"), pool.alloc(2, "kv")
    right = pool["conv"].kernel_ids(handle.page_ids())[:2]
    wrong = {
        "kernel ids of another sub-pool": pool["other"].kernel_ids(others.page_ids()),
        "kernel ids of tokens": pool["kv"].kernel_ids(tokens.token_ids()),
        "kernel ids of another pool": _pool(target)["conv"].kernel_buffer(2, unit="pages"),
        "virtual ids": handle.page_ids()[:2],
        "physical ids": pool["conv"].physical_ids(handle.page_ids())[:2],
        "a bare tensor": target.on_device(torch.tensor([1, 2])),
        "None": None,
    }
    for kind, ids in wrong.items():
        for name, call in _calls(target, pool, right, ids).items():
            if ids is not None or name not in OPTIONAL:
                _refused(target, pool, f"{name} was given {kind}", WrongIdSpace, call)
    pool.epoch += 1
    for name, call in _calls(target, pool, pool["conv"].kernel_ids(handle.page_ids())[:2], right).items():
        _refused(target, pool, f"{name} was given ids from before a compaction", StaleIds, call)


@check("conv_refusals", needs=(ANY_METHOD,))
def check_what_is_not_claimed_is_refused(target: Target) -> None:
    """An optional argument whose capability a backend does not claim is ``Unsupported``, and never ignored."""
    pool = _pool(target)
    ids = pool["conv"].kernel_ids(pool.alloc(6, "conv").page_ids())
    slots, spare = ids[:2], ids[2:4]
    conv, dtype = target.binding().conv(pool["conv"]), getattr(torch, target.claimed("window:"))
    for layer in (2, 5):
        conv.prepare(layer, target.on_device(torch.ones(16, 4)))
    x = target.on_device(torch.ones(4, 16, dtype=dtype))
    ends, ones = target.on_device(torch.tensor([0, 1, 2])), target.on_device(torch.ones(2, dtype=torch.int64))
    parents, path = target.on_device(torch.tensor([-1, 0, -1, 0])), target.on_device(torch.tensor([[0, 1], [0, 1]]))
    calls: dict[tuple[str, str], Callable[[], Any]] = {
        ("snapshots", "prefill"): lambda: conv.prefill(2, x[:2], ends, slots, snapshots=(ones * 0, ones, spare)),
        ("trees", "verify"): lambda: conv.verify(2, x, slots, parents=parents),
        ("trees", "commit"): lambda: conv.commit(slots, ones, path=path),
        ("tracking", "commit"): lambda: conv.commit(slots, ones, track_slots=spare, track_accepted=ones),
    }
    for (tag, method), call in calls.items():
        if tag not in target.offers and f"conv.{method}" in target.offers:
            _refused(
                target, pool, f"{method} was given an argument of {tag!r}, which is not claimed", Unsupported, call
            )


def _refused(target: Target, pool: StatePool, what: str, error: type[Exception], call: Callable[[], Any]) -> None:
    """The call raises that error, and every byte of the pool stays as it was."""
    before = target.image(pool)
    got = "nothing was raised"
    try:
        call()
    except error:
        got = ""
    except Exception as other:
        got = f"{type(other).__name__} was raised: {other}"
    assert not got, f"{what}: expected {error.__name__}, and {got}"
    different = first_difference(pool, before, target.image(pool))
    assert not different, f"{what}: {error.__name__} was raised after a store: {different}"
