"""The quick looks at a convolution's arguments let nothing through that the checks one by one refuse."""

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from inspect import signature
from itertools import product

import pytest
import torch
from test_quick_checks import Arguments, others, wrong_ids
from torch import Tensor

from statehal import ConvRecurrent, bind
from statehal.arguments.conv import ConvArguments
from statehal.errors import StatehalError
from statehal.ids import IdSpace, KernelIds

SLOTS, CHANNELS, DRAFTS = 3, 16, 2
STEPS = ["prefill", "decode", "verify"]
CALLS = [*product([*STEPS, "commit", "copy_slots", "zero_slots", "read_state"], ["all", "nothing"])]


def fitting(method: str, slots: KernelIds, rest: KernelIds, dtype: torch.dtype) -> Arguments:
    """What fits, everything optional included; ``rest`` are ``SLOTS * DRAFTS`` slots more."""

    def rows(tokens: int) -> Tensor:
        return torch.arange(tokens * CHANNELS).reshape(tokens, CHANNELS).remainder(7).to(dtype)

    ones, others = torch.ones(SLOTS, dtype=torch.int32), rest[:SLOTS]
    one: Arguments = {"layer": 2, "x": rows(SLOTS), "slots": slots, "out": rows(SLOTS)}
    two: Arguments = {"layer": 2, "x": rows(SLOTS * DRAFTS), "slots": slots, "out": rows(SLOTS * DRAFTS)}
    two["query_start_loc"] = torch.arange(SLOTS + 1) * DRAFTS
    flags, parents = torch.tensor([True, False, True]), torch.tensor([-1, 0] * SLOTS, dtype=torch.int32)
    state = {
        "has_initial_state": flags,
        "initial_slots": others,
        "snapshots": (torch.arange(SLOTS), ones, rest[SLOTS:]),
    }
    kept = {"slots": slots, "accepted": ones, "path": torch.arange(DRAFTS).repeat(SLOTS, 1)}
    every: dict[str, Arguments] = {
        "prefill": two | state,
        "decode": one,
        "verify": two | {"parents": parents},
        "commit": kept | {"state_slots": rest.reshape(SLOTS, DRAFTS), "track_slots": others, "track_accepted": ones},
        "copy_slots": {"src": slots, "dst": others},
        "zero_slots": {"slots": slots},
        "read_state": {"slots": slots},
    }
    return every[method]


def wrong(value: object) -> Iterator[object]:
    """What may stand where ``value`` does."""
    if isinstance(value, KernelIds):
        yield from wrong_ids(value)
        elsewhere = IdSpace(value.space.key._replace(owner="other"), value.space.pool)
        yield KernelIds(elsewhere, value.tensors, value.epoch)
    elif isinstance(value, tuple):
        yield from (None, 0, (), value[:2], (*value, None), list(value))
        for at, part in enumerate(value):
            yield from ((*value[:at], bad, *value[at + 1 :]) for bad in wrong(part))
    else:
        yield from others(value)


class Scene:
    """A pool of one backend, its convolution, and what fits a method."""

    def __init__(self, backend: str, dtype: str, method: str, beside: str) -> None:
        hal = bind("cpu", backend)
        spec = ConvRecurrent(
            "conv", (0, 2), CHANNELS, 4, dtype, verify_tokens=DRAFTS, state=(1, 2, 2), state_dtype="float32"
        )
        self.pool = pool = hal.allocate(hal.plan([spec], total_bytes=1 << 18))
        conv = hal.conv(pool["conv"])
        conv.prepare(2, torch.arange(CHANNELS * 4.0).reshape(CHANNELS, 4).remainder(3))
        slots, rest = (pool["conv"].kernel_ids(pool.alloc(n, "conv").page_ids()) for n in (SLOTS, SLOTS * DRAFTS))
        pool.buffer.random_(0, 64, generator=torch.Generator().manual_seed(5))  # finite in every dtype
        self.call: Callable[..., Tensor | None] = getattr(conv, method)
        self.all = fitting(method, slots, rest, torch.bfloat16)
        optional = {one.name for one in signature(self.call).parameters.values() if one.default is None}
        self.right = self.all if beside == "all" else self.all | dict.fromkeys(optional)


def said(scene: Scene) -> dict[tuple[str, int], str]:
    """Of one argument at a time what the call says of everything that may stand there, or what it left where it ran."""
    buffer = scene.pool.buffer
    image = buffer.clone()

    def outcome(given: Arguments) -> str:
        buffer.copy_(image)
        try:
            with torch.no_grad():
                result = scene.call(**given)
        except StatehalError as error:
            assert torch.equal(buffer, image), f"refused after bytes were stored: {error}"
            return f"{type(error).__name__}: {re.sub('in pool [0-9a-f]{8}', 'in its pool', str(error))}"
        left = [buffer] if result is None else [buffer, result.detach().contiguous().view(torch.uint8)]
        return "taken, " + sha256(b"".join(one.numpy().tobytes() for one in left)).hexdigest()

    found = {
        (name, at): outcome(scene.right | {name: bad})
        for name, value in scene.all.items()
        for at, bad in enumerate(wrong(value))
    }
    for at, x in enumerate(wrong(scene.all["x"]) if "x" in scene.all else ()):
        found["x in place", at] = outcome(scene.right | {"x": x, "out": x})
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("method", "beside"), CALLS)
def test_it_says_what_they_say(method: str, beside: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all or none of the optional arguments are beside one; what both take leaves the same bytes."""
    backends = ("cpu", "reference")
    quick, reference = (said(Scene(backend, dtype, method, beside)) for backend in backends)
    monkeypatch.setattr(ConvArguments, "_own", lambda self, slots: None)
    assert [quick, reference] == [said(Scene(backend, dtype, method, beside)) for backend in backends]
    for case, text in reference.items():
        assert quick[case].startswith("taken") if text.startswith("taken") else quick[case] == text, case
    taken = [text for text in quick.values() if text.startswith("taken")]
    assert 0 < len(taken) < len(quick)


@pytest.mark.parametrize(("method", "beside"), [call for call in CALLS if call[0] in STEPS])
def test_what_fits_is_not_checked_one_by_one(method: str, beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("cpu", "bfloat16", method, beside)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the shared checks were asked")

    monkeypatch.setattr(ConvArguments, method, never)
    scene.call(**scene.right)
    with pytest.raises(AssertionError, match="shared checks were asked"):
        scene.call(**scene.right | {"x": None})
