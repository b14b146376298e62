"""Arguments of KV writes that do not fit, and whether a call with one of them is refused before anything is stored."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.testing.kv.scene import Scene
from statehal.testing.oracles.bytes import first_difference

OF_ITS_SIZE = {torch.float32: torch.int32, torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}


@dataclass(frozen=True)
class Misfit:
    """Arguments that do not fit, and what they are.

    Attributes:
        what: in words: "k that has a row too few".
        changed: they take the place of those that fit.
        named: names of arguments; the error has to name one of them.
    """

    what: str
    changed: Mapping[str, Any]
    named: tuple[str, ...]


def one(name: str, what: str, value: object, *also: str) -> Misfit:
    """One argument that does not fit; the error may name others instead."""
    return Misfit(f"{name} of {what}", {name: value}, (name, *also))


def refuses(scene: Scene, method: str, right: Mapping[str, Any], misfits: Iterable[Misfit]) -> None:
    """Fail unless every misfit is an ``ArgumentError`` that names it and changes no byte, and the right call is taken.

    Args:
        method: ``"kv.write"``, ..
        right: arguments that fit; outputs among them have to stay as they are, too.
    """
    name = method.removeprefix("kv.")
    call = getattr(scene.writer, name)
    outs = {key: (out, out.clone()) for key, out in right.items() if key.endswith("_out")}
    before = scene.image()
    for misfit in misfits:
        try:
            call(**{**right, **misfit.changed})
        except ArgumentError as error:
            told = any(re.search(rf"\b{word}\b", str(error)) for word in misfit.named)
            assert told, f"{name} refused {misfit.what} and does not name {' or '.join(misfit.named)}: {error}"
        except Exception as error:
            raise AssertionError(f"{name} refused {misfit.what} with {type(error).__name__}: {error}") from error
        else:
            raise AssertionError(f"{name} took {misfit.what}")
        different = first_difference(scene.pool, before, scene.image())
        assert not different, f"{name} refused {misfit.what} after it had stored: {different}"
        for key, (out, kept) in outs.items():
            assert torch.equal(out, kept), f"{name} refused {misfit.what} after it had written to {key}"
    call(**right)


def bad_rows(name: str, rows: Tensor, *, any_heads: bool = False) -> list[Misfit]:
    """Rows ``[tokens, dim]`` or ``[tokens, heads, dim]`` with one fault each; there are two tokens or more.

    Args:
        any_heads: their number is the caller's.
    """
    made = {
        "a row too few": rows[:-1],
        "a row too many": torch.cat([rows, rows[:1]]),
        "one row for all": rows[:1],
        "an element too few": rows[..., :-1].contiguous(),
        "an element too many": torch.cat([rows, rows[..., :1]], -1),
        "another dtype": rows.to(torch.float32 if rows.dtype != torch.float32 else torch.float16),
        "another dtype of its size": rows.view(OF_ITS_SIZE.get(rows.dtype, torch.uint8)),
        "a last dimension with gaps": rows.repeat_interleave(2, -1)[..., ::2],
        "an axis too few": rows.flatten(-2),
        "an axis too many": rows[None],
        "another device": rows.to("meta"),
    }
    if rows.dim() == 3 and not any_heads:
        heads, dim = rows.shape[1:]
        made["a head too many"] = torch.cat([rows, rows[:, :1]], 1)
        made |= {"one head for all": rows[:, :1]} if heads > 1 else {}
        made |= {"heads and elements in each other's place": rows.mT.contiguous()} if heads != dim else {}
    return [Misfit(f"{name} that has {fault}", {name: spoiled}, (name,)) for fault, spoiled in made.items()]


def bad_weights(name: str, weight: Tensor) -> list[Misfit]:
    """Weights of a norm that are not ``[dim]``, floating, on the device."""
    made = {
        "an element too few": weight[:-1],
        "an element too many": torch.cat([weight, weight[:1]]),
        "one element": weight[:1],
        "two axes": weight[None],
        "integers": weight.int(),
        "another device": weight.to("meta"),
    }
    return [one(name, what, value) for what, value in made.items()]


def bad_turns(right: Mapping[str, Any], width: int) -> list[Misfit]:
    """Positions ``[tokens]`` and tables that do not fit heads ``width`` wide."""
    positions, table = right["positions"], right["cos_sin"]
    places = {
        "a token too few": positions[:-1],
        "a token too many": torch.cat([positions, positions[:1]]),
        "one for all tokens": positions[:1],
        "a column": positions[:, None],
        "three rows without sections": positions.expand(3, -1),
        "floating numbers": positions.double(),
        "another device": positions.to("meta"),
    }
    tables = {
        "an odd rope_dim": table[:, :-1].contiguous(),
        "a rope_dim above the width": torch.ones(len(table), width + 2, device=table.device),
        "one axis": table[:, 0].contiguous(),
        "three axes": table.unflatten(-1, (2, -1)),
        "integers": table.int(),
        "one-byte floats": table.to(torch.float8_e5m2),
        "another device": table.to("meta"),
    }
    bad = {"positions": places, "cos_sin": tables}
    return [
        Misfit(f"{name} of {what}", {**right, name: value}, (name,))
        for name, made in bad.items()
        for what, value in made.items()
    ]


def bad_layers(scene: Scene) -> list[Misfit]:
    """Layers that the sub-pool has not, one of another sub-pool and an index among them."""
    known = {layer for group in scene.setting.spec.groups() for layer in group}
    return [
        Misfit(f"layer {layer}", {"layer": layer}, ("layer",)) for layer in (-1, 0, 1, 50, 10**6) if layer not in known
    ]
