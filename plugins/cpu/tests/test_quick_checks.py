"""The quick look that the extension takes at arguments lets nothing through that the shared checks refuse."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from statehal import Attention, Latent, bind
from statehal.errors import StatehalError
from statehal.ids import KernelIds
from statehal.pool import StatePool

TOKENS, HEADS, DIM, RANK, ROPE = 5, 2, 16, 24, 8
DTYPES = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int32", "int64", "bool")
OPTIONAL = {"norm", "q_norm", "k_norm", "q_out", "k_out"}
Arguments = dict[str, Any]


class Scene:
    """A pool of one backend, and what makes its writes."""

    def __init__(self, backend: str, dtype: str) -> None:
        hal = bind("cpu", backend)
        stored = "float8_e4m3fn" if dtype == "scaled" else dtype
        kv = Attention("kv", (0, 3), HEADS, DIM, stored, v_head_dim=DIM + 8)
        if dtype == "scaled":
            kv = replace(kv, scales="per_token_head")
        self.pool: StatePool = hal.allocate(hal.plan([kv, Latent("mla", (0, 3), RANK, ROPE, stored)], tokens=64))
        self.words = self.pool.buffer.view(torch.int64)
        self.ids = {name: self.pool[name].kernel_ids(self.pool.alloc(TOKENS, name).token_ids()) for name in self.pool}
        kv_writer, mla_writer = hal.kv(self.pool["kv"]), hal.kv(self.pool["mla"])
        self.calls: dict[str, Callable[..., Any]] = {
            "write": kv_writer.write,
            "rope_write": kv_writer.rope_write,
            "write_latent": mla_writer.write_latent,
        }


def fitting(method: str, ids: dict[str, KernelIds], dtype: torch.dtype) -> Arguments:
    def ones(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=dtype)

    if method == "write_latent":
        return {
            "layer": 3, "ids": ids["mla"], "kv_c": ones(TOKENS, RANK), "k_pe": ones(TOKENS, ROPE),
            "norm": torch.ones(RANK), "eps": 1e-6, "positions": torch.arange(TOKENS), "cos_sin": torch.ones(9, ROPE),
            "scale": None,
        }  # fmt: skip
    rows = {"layer": 3, "ids": ids["kv"], "k": ones(TOKENS, HEADS, DIM), "v": ones(TOKENS, HEADS, DIM + 8)}
    scales = {"k_scale": None, "v_scale": None}
    if method == "write":
        return rows | scales
    rotation = {"positions": torch.arange(TOKENS), "cos_sin": torch.ones(9, DIM - 4), "rope_sections": None}
    outs = {"q_out": ones(TOKENS, 3, DIM), "k_out": ones(TOKENS, HEADS, DIM)}
    norms = {"q_norm": torch.ones(DIM), "k_norm": torch.ones(DIM), "eps": 1e-6}
    return rows | {"q": ones(TOKENS, 3, DIM)} | rotation | norms | outs | scales


def others(value: object) -> Iterator[object]:
    """What may stand where ``value`` does: other dtypes, sizes, strides, axes, devices and kinds of objects."""
    yield from (None, 0, 1, 2.5, 0.0, -1.0, float("nan"), float("inf"), True, "bfloat16", [1, 2, 3])
    yield from (
        (2, 2, 2),
        (6, 0, 0),
        (3, 2, 1),
        (0, -1, 7),
        (1, 2, 4),
        (1, 1, 1),
        (2**70, 0, 0),
        (2.0, 2, 2),
        [2, 2, 2],
        (True, 2, 3),
    )
    yield from (torch.tensor(0.5), torch.tensor([0.5]), torch.tensor([0.5, 0.5]), torch.tensor(2), torch.tensor(-1.0))
    if not isinstance(value, Tensor):
        return
    yield from (value.to(getattr(torch, name)) for name in DTYPES)
    yield from (value[1:], value[:0], value[None], value[..., :-1], value[..., :0], torch.cat([value, value]))
    yield from (value.unsqueeze(1), value.flatten(), value.repeat(3, *[1] * value.dim()))
    yield torch.cat([value, value], -1)
    yield torch.stack([value, value], -1)[..., 0]
    yield torch.cat([value, value], -1)[..., : value.shape[-1]]
    yield torch.stack([value, value])[0]
    yield value.clone().transpose(0, -1).contiguous().transpose(0, -1)
    yield value[:1].expand(value.shape)
    yield value.to("meta")
    if value.is_floating_point():
        yield value.clone().requires_grad_()
        yield torch.nn.Parameter(value.clone())
    with torch.inference_mode():
        made = value.clone()
    yield made


def wrong_ids(ids: KernelIds) -> Iterator[object]:
    for tensors in zip(*(others(tensor) for tensor in ids.tensors), strict=True):
        if all(isinstance(tensor, Tensor) for tensor in tensors):
            yield KernelIds(ids.space, tensors, ids.epoch)
    yield from (ids.tensors[0], None, [0], KernelIds(ids.space, ids.tensors, ids.epoch + 1))


def outcome(call: Callable[..., Any], arguments: Arguments) -> str:
    """The error of a call as a text, or that there was none."""
    layer, ids, *rest = arguments.items()
    try:
        with torch.no_grad():
            call(layer[1], ids[1], **dict(rest))
    except StatehalError as error:
        return f"{type(error).__name__}: {re.sub('in pool [0-9a-f]{8}', 'in its pool', str(error))}"
    return "taken"


def image(value: object) -> Tensor | None:
    return value.detach().clone().reshape(-1).view(torch.uint8) if isinstance(value, Tensor) else None


def tried(scene: Scene, method: str, arguments: Arguments) -> str:
    """As of ``outcome``; what was refused left the pool and the outputs as they were."""
    before, outs = scene.words.clone(), [arguments.get(name) for name in ("q_out", "k_out")]
    images = [image(out) for out in outs]
    said = outcome(scene.calls[method], arguments)
    if said != "taken":
        assert torch.equal(scene.words, before), f"refused after bytes were stored: {said}"
        for out, old in zip(outs, images, strict=True):
            new = image(out)
            assert new is None or old is None or new.device.type == "meta" or torch.equal(new, old)
    return said


@pytest.mark.parametrize(
    "stored", ["bfloat16", "float8_e4m3fn", *(pytest.param(n, marks=pytest.mark.thorough) for n in ("scaled", "int32"))]
)
@pytest.mark.parametrize(
    ("method", "beside"),
    [*product(["write", "rope_write", "write_latent"], ["all", "nothing"]), ("rope_write", "sections")],
)
def test_refusals_are_those_of_the_shared_checks(method: str, beside: str, stored: str) -> None:
    """Of one argument, where all, none of the optional ones or sections are beside it."""
    given = torch.int32 if stored == "int32" else torch.bfloat16
    found: dict[str, dict[tuple[str, int], str]] = {}
    for backend in ("reference", "cpu"):
        scene = Scene(backend, stored)
        right = fitting(method, scene.ids, given)
        if beside == "sections":
            right |= {"positions": right["positions"].repeat(3, 1), "rope_sections": (1, 2, 3)}
        rest = right if beside != "nothing" else right | dict.fromkeys(right.keys() & OPTIONAL)
        found[backend] = {
            (name, at): tried(scene, method, rest | {name: bad})
            for name, value in right.items()
            for at, bad in enumerate(wrong_ids(value) if name == "ids" else others(value))
        }
    for case, said in found["reference"].items():
        assert found["cpu"][case] == said, case
    refused = [said for said in found["cpu"].values() if said != "taken"]
    assert len(refused) > 100
    assert (stored == "int32" and method != "write") or len(refused) < len(found["cpu"])
