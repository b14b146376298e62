"""Arguments that are no tensors, or have another number of axes: errors of statehal that name them, and no others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import statehal
from reference.conv_oracle import Rig, refused, rig
from reference.kv_oracle import raw
from statehal.errors import ArgumentError, IdError

JUNK: dict[str, Any] = {
    "a number": 1,
    "a list": [0, 1],
    "a text": "x",
    "a dictionary": {},
    "no axes": torch.tensor(1),
    "no axes, floating": torch.tensor(1.0),
    "four axes": torch.ones(1, 1, 1, 1),
    "a complex tensor": torch.ones(2, dtype=torch.complex64),
}
ONES = torch.ones(2, dtype=torch.int64)


def conv_calls(made: Rig) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Each method with good arguments, by name."""
    conv, slots, x, loc = made.conv, made.pick(1, 2), torch.ones(4, 3), torch.tensor([0, 2, 4])
    flags = torch.tensor([True, True])
    path, states = torch.tensor([[0, 1], [0, 1]]), made.pick(3, 4, 5, 6).reshape(2, 2)
    prefill = {"x": x, "query_start_loc": loc, "slots": slots, "has_initial_state": flags, "initial_slots": slots}
    return {
        "prepare": (
            conv.prepare,
            {"layer": 0, "weight": torch.ones(3, 4), "bias": torch.ones(3), "activation": "silu"},
        ),
        "prefill": (
            conv.prefill,
            {"layer": 0, **prefill, "snapshots": (ONES, ONES, made.pick(5, 6)), "out": x.clone()},
        ),
        "decode": (conv.decode, {"layer": 0, "x": x[:2], "slots": slots, "out": x[:2].clone()}),
        "verify": (
            conv.verify,
            {"layer": 0, "x": x, "slots": slots, "query_start_loc": loc, "parents": torch.tensor([-1, 0, -1, 0])},
        ),
        "commit": (
            conv.commit,
            {
                "slots": slots,
                "accepted": ONES,
                "path": path,
                "state_slots": states,
                "track_slots": made.pick(7, 8),
                "track_accepted": ONES,
            },
        ),
        "copy_slots": (conv.copy_slots, {"src": slots, "dst": made.pick(3, 4)}),
        "zero_slots": (conv.zero_slots, {"slots": slots}),
        "read_state": (conv.read_state, {"slots": slots}),
    }


@pytest.mark.parametrize("options", [{}, {"check": True}, {"compile_safe": True}], ids=str)
@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    "method", ["prepare", "prefill", "decode", "verify", "commit", "copy_slots", "zero_slots", "read_state"]
)
def test_conv(method: str, junk: str, options: dict[str, Any]) -> None:
    check = "check" in options
    made = rig(4, 3, verify_tokens=2, state=(2,), check=check, slots=8)
    if "compile_safe" in options:
        made.conv = statehal.bind("cpu", "reference", compile_safe=True).conv(made.sub)
        made.conv.prepare(0, torch.ones(3, 4))
    call, good = conv_calls(made)[method]
    if method == "commit" and check:
        made.conv.verify(0, torch.ones(4, 3), good["slots"])
    for name in good:
        if name == "layer" and junk == "a number":
            continue
        given = good | {name: JUNK[junk]}
        with_name = (
            name if name not in ("slots", "src", "dst") and not name.endswith("_slots") else "takes kernel pages"
        )
        refused(made, (ArgumentError, IdError), with_name, lambda given=given: call(**given))  # type: ignore[misc, arg-type]
    call(**good)


@pytest.mark.parametrize("junk", ["a number", "a list", "a text", "a dictionary", "no axes", "four axes"])
def test_snapshots(junk: str) -> None:
    made = rig(4, 3)
    points: list[Any] = [ONES, ONES, made.pick(3, 4)]
    slots, x, loc = made.pick(1, 2), torch.ones(4, 3), torch.tensor([0, 2, 4])
    cases: list[Any] = [tuple(points[:2])]
    for n in range(3):
        bad = points.copy()
        bad[n] = JUNK[junk]
        cases.append(tuple(bad))
    for given in cases:
        text = r"prefill of layer 0 of 'conv'.*(snapshots|takes kernel pages)"
        call = partial(made.conv.prefill, 0, x, loc, slots, snapshots=given)
        refused(made, (ArgumentError, IdError), text, call)  # type: ignore[arg-type]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("options", [{}, {"check": True}, {"compile_safe": True}], ids=str)
@pytest.mark.parametrize("method", ["write", "rope_write", "write_latent", "move"])
def test_kv(method: str, junk: str, options: dict[str, Any]) -> None:
    hal = statehal.bind("cpu", "reference", **options)
    specs = [statehal.Attention("kv", (0,), 1, 4, "int8"), statehal.Latent("mla", (0,), 4, 2, "float8_e5m2")]
    pool = hal.allocate(hal.plan(specs, tokens=16, page_size=4))
    pages = pool.alloc(4).token_ids()
    name = "mla" if method == "write_latent" else "kv"
    ids = pool[name].kernel_ids(pages)
    rows, table, norm = torch.ones(2, 1, 4), torch.ones(3, 2), torch.ones(4)
    scales: dict[str, Any] = {"k_scale": 2.0, "v_scale": torch.tensor([2.0])}
    rope = {"positions": ONES.expand(3, 2), "cos_sin": table, "rope_sections": (1, 0, 0)}
    outs = {"q_norm": norm, "k_norm": norm, "q_out": rows.clone(), "k_out": rows.clone(), "eps": 1e-6}
    good: dict[str, Any] = {
        "write": {"layer": 0, "ids": ids[:2], "k": rows, "v": rows, **scales},
        "rope_write": {"layer": 0, "ids": ids[:2], "q": rows, "k": rows, "v": rows, **rope, **outs, **scales},
        "write_latent": {
            "layer": 0,
            "ids": ids[:2],
            "kv_c": rows[:, 0],
            "k_pe": rows[:, 0, :2],
            "norm": norm,
            "eps": 1e-6,
            "positions": ONES,
            "cos_sin": table,
            "scale": 2.0,
        },
        "move": {"dst": ids[:2], "src": ids[2:]},
    }[method]
    call, before = getattr(hal.kv(pool[name]), method), raw(pool.buffer)
    fine = {"layer": ["a number"], "eps": ["a number"], "k_scale": ["a number", "no axes, floating", "four axes"]}
    fine |= {"v_scale": fine["k_scale"], "scale": fine["k_scale"]}
    for argument in good:
        if junk in fine.get(argument, []):
            continue
        text = "takes kernel tokens" if argument in ("ids", "dst", "src") else argument
        with pytest.raises((ArgumentError, IdError), match=text):
            call(**good | {argument: JUNK[junk]})
    assert raw(pool.buffer) == before
    call(**good)


@pytest.mark.parametrize("method", ["decode", "prefill", "verify"])
def test_an_output_that_cannot_be_written_is_refused_before_the_window_is(method: str) -> None:
    made = rig(4, 3, verify_tokens=2, slots=8)
    call, good = conv_calls(made)[method]
    with torch.inference_mode():
        frozen = torch.ones(good["x"].shape)
    for out, text in (
        (torch.ones(1, 3).expand(good["x"].shape), r"rows of out share memory \\(fix: pass out.clone"),
        (torch.ones(99).as_strided(good["x"].shape, (2, 1)), r"rows of out share memory"),
        (torch.ones(good["x"].shape[0], 6)[:, ::2], r"the last dimension of out has stride 2"),
        (frozen, r"out was made under inference_mode and can be written to only there"),
    ):
        given = good | {"out": out}
        refused(made, ArgumentError, text.replace("\\\\", "\\"), lambda given=given: call(**given))  # type: ignore[misc]
    leaf = torch.ones(good["x"].shape, requires_grad=True)
    assert call(**good | {"out": leaf}) is leaf
    assert not bool(leaf.detach().eq(1).all())


def test_slots_have_one_axis() -> None:
    made = rig(4, 3)
    square = made.pick(1, 2, 3, 4).reshape(2, 2)
    text = r"decode of layer 0 of 'conv': slots has shape \[2, 2\]: expected one axis"
    refused(made, ArgumentError, text, lambda: made.conv.decode(0, torch.ones(4, 3), square))
    refused(made, ArgumentError, r"dst has shape \[2, 2\]", lambda: made.conv.copy_slots(made.pick(1), square))


def test_initial_slots_need_flags() -> None:
    made = rig(4, 3)
    text = r"initial_slots without has_initial_state are not read \(fix: pass has_initial_state"
    x, loc, slots = torch.ones(4, 3), torch.tensor([0, 2, 4]), made.pick(1, 2)
    refused(made, ArgumentError, text, lambda: made.conv.prefill(0, x, loc, slots, initial_slots=made.pick(3, 4)))


def test_a_weight_as_modules_keep_it_is_refused_with_the_remedy() -> None:
    made = rig(4, 3, weights=False)
    text = r"weight is torch.float32 \[3, 1, 4\] on cpu: expected floating \[3, 4\] on cpu \(fix: pass weight.sq"
    refused(made, ArgumentError, text, lambda: made.conv.prepare(0, torch.ones(3, 1, 4)))
