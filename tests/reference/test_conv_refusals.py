"""What conv operations refuse: texts that name the argument, and a pool left as it was."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from reference.conv_oracle import Rig, refused, rig
from statehal.errors import ArgumentError, WrongIdSpace


@pytest.fixture
def made() -> Rig:
    return rig(4, 3, "bfloat16", layers=(0, 2), state=(2, 2))


def x(tokens: int = 2, channels: int = 3, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.ones(tokens, channels, dtype=dtype)


LOC = torch.tensor([0, 1, 2])
ONES = torch.ones(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (x(3), r"x is torch.bfloat16 \[3, 3\] on cpu: expected torch.bfloat16 \[2, 3\] on cpu"),
        (x(2, 4), r"x is torch.bfloat16 \[2, 4\] on cpu: expected torch.bfloat16 \[2, 3\] on cpu"),
        (x()[0], r"x is torch.bfloat16 \[3\] on cpu"),
        (x(dtype=torch.float16), r"x is torch.float16 \[2, 3\] on cpu: expected torch.bfloat16 \[2, 3\] on cpu"),
        (x(dtype=torch.float32), r"x is torch.float32 \[2, 3\] on cpu: expected torch.bfloat16 \[2, 3\] on cpu"),
        (x().to("meta"), r"x is torch.bfloat16 \[2, 3\] on meta: expected torch.bfloat16 \[2, 3\] on cpu"),
        (x(2, 6)[:, ::2], r"the last dimension of x has stride 2: expected 1 \(fix: pass x.contiguous\(\)\)"),
        (x(3, 2).t(), r"the last dimension of x has stride 2"),
    ],
)
def test_x_of_decode_and_prefill(made: Rig, bad: torch.Tensor, text: str) -> None:
    slots = made.pick(1, 2)
    refused(made, ArgumentError, "decode of layer 0 of 'conv': " + text, lambda: made.conv.decode(0, bad, slots))
    if bad.shape != (3, 3):  # prefill takes as many tokens as there are
        text = "prefill of layer 0 of 'conv': " + text
        refused(made, ArgumentError, text, lambda: made.conv.prefill(0, bad, LOC, slots))


@pytest.mark.parametrize("method", ["decode", "prefill"])
@pytest.mark.parametrize(
    ("out", "text"),
    [
        (x(3), r"out is torch.bfloat16 \[3, 3\].*: expected torch.bfloat16 \[2, 3\]"),
        (x(dtype=torch.float32), r"out is torch.float32 \[2, 3\].*: expected torch.bfloat16 \[2, 3\]"),
    ],
)
def test_out_is_checked_before_the_state_changes(made: Rig, method: str, out: torch.Tensor, text: str) -> None:
    def call() -> torch.Tensor:
        if method == "decode":
            return made.conv.decode(0, x(), made.pick(1, 2), out=out)
        return made.conv.prefill(0, x(), LOC, made.pick(1, 2), out=out)

    refused(made, ArgumentError, f"{method} of layer 0 of 'conv': {text}", call)
    assert out.eq(1).all()


@pytest.mark.parametrize(
    ("loc", "text"),
    [
        (torch.tensor([0, 2]), r"query_start_loc is torch.int64 \[2\] on cpu: expected int32 or int64 \[3\] on cpu"),
        (torch.tensor([0.0, 1, 2]), r"query_start_loc is torch.float32 \[3\] on cpu"),
        (torch.tensor([[0, 1, 2]]), r"query_start_loc is torch.int64 \[1, 3\]"),
        (torch.tensor([0, 1, 2]).to("meta"), r"query_start_loc is torch.int64 \[3\] on meta"),
    ],
)
def test_query_start_loc(made: Rig, loc: torch.Tensor, text: str) -> None:
    refused(made, ArgumentError, text, lambda: made.conv.prefill(0, x(), loc, made.pick(1, 2)))


@pytest.mark.parametrize("bad", [torch.tensor([True]), torch.tensor([1, 0]), torch.tensor([[True, True]])])
def test_has_initial_state(made: Rig, bad: torch.Tensor) -> None:
    text = r"has_initial_state is torch\..* on cpu: expected torch.bool \[2\] on cpu"
    refused(made, ArgumentError, text, lambda: made.conv.prefill(0, x(), LOC, made.pick(1, 2), bad))


def test_initial_slots(made: Rig) -> None:
    text = "initial_slots has 1 slots: expected 2"
    yes = torch.tensor([True, True])
    slots, source = made.pick(1, 2), made.pick(3)
    refused(made, ArgumentError, text, lambda: made.conv.prefill(0, x(), LOC, slots, yes, initial_slots=source))


@pytest.mark.parametrize("bad", [torch.tensor([1]), torch.tensor([1.0, 1.0]), torch.tensor([[1, 1]])])
def test_accepted(made: Rig, bad: torch.Tensor) -> None:
    text = r"commit of 'conv': accepted is torch.* expected int32 or int64 \[2\] on cpu"
    refused(made, ArgumentError, text, lambda: made.conv.commit(made.pick(1, 2), bad))


@pytest.fixture
def drafted() -> Rig:
    return rig(4, 3, "bfloat16", layers=(0, 2), state=(2, 2), verify_tokens=3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": ONES}, r"path is torch.int64 \[2\] on cpu: expected int32 or int64 \[2, 3\] on cpu"),
        ({"path": torch.ones(2, 3)}, r"path is torch.float32 \[2, 3\]"),
        ({"state_slots": (1, 2)}, r"state_slots has shape \[2\]: expected \[2, 3\]"),
        ({"track_slots": (3, 4)}, r"track_slots and track_accepted go together: give both or none"),
        ({"track_accepted": ONES}, r"track_slots and track_accepted go together: give both or none"),
        ({"track_slots": (3,), "track_accepted": ONES}, r"track_slots has 1 slots: expected 2"),
        ({"track_slots": (3, 4), "track_accepted": ONES[:1]}, r"track_accepted is torch.int64 \[1\].*\[2\]"),
        (
            {"track_slots": (3, 4), "track_accepted": ONES},
            r"track_slots without state_slots would keep conv rows of one count beside recurrent rows of another",
        ),
    ],
)
def test_options_of_commit(drafted: Rig, options: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {
        name: drafted.pick(*value) if name.endswith("slots") else value for name, value in options.items()
    }
    call = partial(drafted.conv.commit, drafted.pick(1, 2), ONES, **given)
    refused(drafted, ArgumentError, "commit of 'conv': " + text, call)


@pytest.mark.parametrize(
    ("tokens", "options", "text"),
    [
        (5, {}, r"x is torch.bfloat16 \[5, 3\] on cpu: expected torch.bfloat16 \[6, 3\]"),
        (5, {"query_start_loc": LOC[:2]}, r"query_start_loc is torch.int64 \[2\].*\[3\]"),
        (
            5,
            {"query_start_loc": LOC, "parents": ONES},
            r"parents is torch.int64 \[2\].*: expected int32 or int64 \[5\]",
        ),
        (6, {"parents": torch.zeros(6)}, r"parents is torch.float32 \[6\]"),
        (6, {"out": x(5)}, r"out is torch.bfloat16 \[5, 3\].*: expected torch.bfloat16 \[6, 3\]"),
    ],
)
def test_arguments_of_verify(drafted: Rig, tokens: int, options: dict[str, Any], text: str) -> None:
    call = partial(drafted.conv.verify, 2, x(tokens), drafted.pick(1, 2), **options)
    refused(drafted, ArgumentError, "verify of layer 2 of 'conv': " + text, call)


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ((LOC, LOC[:2], (3, 4)), r"snapshots\[0\] is torch.int64 \[3\].*: expected int32 or int64 \[2\]"),
        ((LOC[:2], LOC, (3, 4)), r"snapshots\[1\] is torch.int64 \[3\]"),
        ((LOC[:2].float(), LOC[:2], (3, 4)), r"snapshots\[0\] is torch.float32 \[2\]"),
    ],
)
def test_snapshots(made: Rig, points: Any, text: str) -> None:
    sequence, end, slots = points
    call = partial(made.conv.prefill, 0, x(), LOC, made.pick(1, 2), snapshots=(sequence, end, made.pick(*slots)))
    refused(made, ArgumentError, "prefill of layer 0 of 'conv': " + text, call)


def test_copies_of_unequal_numbers(made: Rig) -> None:
    text = "copy_slots of 'conv': dst has 1 slots: expected 2, as src"
    refused(made, ArgumentError, text, lambda: made.conv.copy_slots(made.pick(1, 2), made.pick(3)))


@pytest.mark.parametrize(
    ("weight", "bias", "activation", "text"),
    [
        (torch.ones(3, 5), None, None, r"weight is torch.float32 \[3, 5\].*: expected floating \[3, 4\]"),
        (torch.ones(4, 3), None, None, r"weight is torch.float32 \[4, 3\]"),
        (torch.ones(3, 1, 4), None, None, r"weight is torch.float32 \[3, 1, 4\]"),
        (
            torch.ones(3, 4, dtype=torch.int64),
            None,
            None,
            r"weight is torch.int64 \[3, 4\].*: expected floating \[3, 4\]",
        ),
        (torch.ones(3, 4, device="meta"), None, None, r"weight is torch.float32 \[3, 4\] on meta"),
        (torch.ones(3, 4), torch.ones(4), None, r"bias is .*\[4\].*: expected .*\[3\]"),
        (
            torch.ones(3, 4),
            torch.ones(3, dtype=torch.int64),
            None,
            r"bias is torch.int64 \[3\].*: expected floating \[3\]",
        ),
        (torch.ones(3, 4), None, "gelu", r"activation='gelu': expected None or 'silu'"),
    ],
)
def test_weights(made: Rig, weight: torch.Tensor, bias: torch.Tensor | None, activation: Any, text: str) -> None:
    text = "prepare of layer 2 of 'conv': " + text
    refused(made, ArgumentError, text, lambda: made.conv.prepare(2, weight, bias, activation=activation))


def test_layers(made: Rig) -> None:
    text = r"of layer 1 of 'conv': no layer 1 here: the sub-pool's layers are \[0, 2\]"
    refused(made, ArgumentError, "prepare " + text, lambda: made.conv.prepare(1, torch.ones(3, 4)))
    refused(made, ArgumentError, "decode " + text, lambda: made.conv.decode(1, x(), made.pick(1, 2)))
    refused(made, ArgumentError, "prefill " + text, lambda: made.conv.prefill(1, x(), LOC, made.pick(1, 2)))


def test_weights_must_come_first() -> None:
    bare = rig(4, 3, "bfloat16", weights=False)
    text = r"no weights yet \(fix: call prepare\(0, weight, bias\) first\)"
    slots = bare.pick(1, 2)
    refused(bare, ArgumentError, "decode of layer 0 of 'conv': " + text, lambda: bare.conv.decode(0, x(), slots))
    refused(bare, ArgumentError, text, lambda: bare.conv.prefill(0, x(), LOC, slots))


def test_slots_of_another_space(made: Rig) -> None:
    other = rig(4, 3, "bfloat16", layers=(0, 2), state=(2, 2))
    numbers = torch.tensor([1, 2])
    cases: dict[str, Any] = {
        "virtual pages of 'slots'": made.sub.space("virtual", "pages").assume(numbers),
        "kernel tokens of 'conv'": made.sub.kernel_ids(made.sub.space("virtual", "tokens").assume(numbers)),
        "a bare Tensor": numbers,
        "kernel pages of 'conv'": other.pick(1, 2),
    }
    good, conv, ones = made.pick(1, 2), made.conv, torch.ones(2, dtype=torch.int64)
    for text, bad in cases.items():
        calls: list[Callable[[], Any]] = [
            partial(conv.decode, 0, x(), bad),
            partial(conv.prefill, 0, x(), LOC, bad),
            partial(conv.prefill, 0, x(), LOC, good, initial_slots=bad),
            partial(conv.prefill, 0, x(), LOC, good, snapshots=(ones, ones, bad)),
            partial(conv.verify, 0, x(), bad),
            partial(conv.commit, bad, ones),
            partial(conv.commit, good, ones, state_slots=bad),
            partial(conv.commit, good, ones, track_slots=bad, track_accepted=ones),
            partial(conv.copy_slots, bad, good),
            partial(conv.copy_slots, good, bad),
            partial(conv.zero_slots, bad),
            partial(conv.read_state, bad),
        ]
        for call in calls:
            wanted = rf"of 'conv' takes kernel pages of 'conv' in pool .* but was given {text}"
            refused(made, WrongIdSpace, wanted, call)
