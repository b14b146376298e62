"""A write of rows that are quantised, its values, and the bytes after it with NaN as one class."""

import struct
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from statehal.spec import Attention
from statehal.testing.kv.inputs import Inputs, bits, heads
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import Setting
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.eight_bits import EIGHT_BITS, computed_scale, one_nan, single, stored
from statehal.testing.target import Target


@dataclass(frozen=True)
class QuantisedCase:
    """Rows of a wide dtype for a sub-pool of one-byte storage.

    Attributes:
        given: dtype of the rows.
        scales: of K and of V: a number, or ``None``.
        as_tensor: scales are given as tensors of one element.
    """

    setting: Setting
    given: str
    scales: tuple[float | None, float | None]
    as_tensor: bool

    @property
    def features(self) -> frozenset[str]:
        found = {f"{self.given} rows"}
        found |= {"one scale"} if (self.scales[0] is None) != (self.scales[1] is None) else set()
        found |= {"two scales"} if None not in self.scales else {"no scale"} if self.scales == (None, None) else set()
        found |= {"a scale in a tensor" if self.as_tensor else "a scale as a number"} if any(self.scales) else set()
        return frozenset(found | self.setting.features)


def values(storage: str, given: str, shape: tuple[int, int, int], scale: float, seed: int) -> Tensor:
    """Rows in reach of the format and past it, with ties, any bits at all, zeros of both signs, infinities and NaN."""
    chance, form = Random(seed), EIGHT_BITS[storage]
    count = shape[0] * shape[1] * shape[2]
    size = min(scale, 2.0**96)

    def value() -> float:
        kind = chance.randrange(8)
        sign: float = chance.choice((-1.0, 1.0))
        if kind < 3:
            return sign * chance.choice(list(form.middles)) * size
        if kind < 5:
            return sign * chance.uniform(0, 1.2) * form.largest * size
        if kind == 5:
            return sign * chance.choice((0.0, 1e9 * size, float("inf"), float("nan"), form.largest * size))
        return sign * float(2.0 ** chance.uniform(-30, 30))

    rows = torch.tensor([single(value()) for _ in range(count)]).to(getattr(torch, given)).view(shape)
    some = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.1
    return torch.where(some, bits(shape, rows.dtype, seed), rows)


def write(target: Target, case: QuantisedCase, rows: tuple[Tensor, Tensor]) -> tuple[Scene, bytearray, bytearray]:
    """Write K and V; the scene, the bytes before and those after, in which NaN is not looked at yet."""
    setting = case.setting
    scene = Scene(target, setting)
    given: dict[str, Tensor] = dict(zip(("k", "v"), rows, strict=True))
    if setting.strided:
        packed = torch.cat([row.flatten(1) for row in rows] + [rows[0].flatten(1)[:, :1]], 1)
        given = {"packed": packed}
    for name, scale in zip(("k_scale", "v_scale"), case.scales, strict=True):
        if case.as_tensor and scale is not None:
            given[name] = torch.tensor([[scale]]) if name == "k_scale" else torch.tensor(scale)
    inputs = Inputs(target, given)
    if setting.strided:
        shapes = [(row.shape[1], row.shape[2]) for row in rows]
        k, v = heads(inputs["packed"][:, :-1], True, *shapes)
    else:
        k, v = inputs["k"], inputs["v"]
    before = scene.image()
    options = {
        name: inputs[name] if name in given else scale
        for name, scale in zip(("k_scale", "v_scale"), case.scales, strict=True)
    }
    scene.writer.write(setting.layer, scene.ids, k, v, **options)
    inputs.unchanged()
    return scene, before, scene.image()


def shapes_of(setting: Setting) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Shapes of K and V."""
    spec, count = setting.spec, len(setting.tokens)
    assert isinstance(spec, Attention)
    return (count, spec.kv_heads, spec.head_dim), (count, spec.kv_heads, spec.v_head_dim or spec.head_dim)


def compare(scene: Scene, wanted: bytearray, found: bytearray, after: str) -> None:
    """Compare all bytes, those of K and V at the setting's tokens with NaN as one class."""
    dtype = scene.setting.spec.dtype
    for name in ("k", "v"):
        for token in scene.setting.tokens:
            if token >= 0:
                due, got = (scene.get(image, name, token) for image in (wanted, found))
                scene.put(found, name, token, one_nan(dtype, due, got))
    different = first_difference(scene.pool, wanted, found)
    assert not different, f"{after}: {different}"


KINDS = ("zeros", "negative zeros", "an infinity", "only infinities", "a NaN", "subnormal", "huge", "ordinary")
"""Heads whose scale has to be thought about."""


def scaled_heads(dtype: torch.dtype, shape: tuple[int, int, int], seed: int) -> Tensor:
    """Rows of float32 or narrower, each head of one of the kinds."""
    chance, generator = Random(seed), torch.Generator().manual_seed(seed)
    rows = torch.randn(shape, generator=generator)
    for token in range(shape[0]):
        for head in range(shape[1]):
            row, kind = rows[token, head], chance.choice(KINDS)
            at = chance.randrange(shape[2])
            row *= 2.0 ** chance.uniform(-20, 20)
            if kind in ("zeros", "negative zeros"):
                row.fill_(0.0 if kind == "zeros" else -0.0)
            elif kind in ("an infinity", "a NaN"):
                row[at] = chance.choice((-1, 1)) * float("inf") if kind == "an infinity" else float("nan")
            elif kind == "only infinities":
                row.fill_(float("inf")).mul_(chance.choice((-1, 1)))
            elif kind == "subnormal":
                row.mul_(2.0**-20).mul_(2.0**-120)
            elif kind == "huge":
                row[at] = 3.3895313892515355e38
    return rows.to(dtype)


def put_scaled(scene: Scene, wanted: bytearray, name: str, rows: Tensor, given: float | None) -> None:
    """Rows and scales of K or V, computed or given."""
    dtype = scene.setting.spec.dtype
    for row, token in zip(rows.double().tolist(), scene.setting.tokens, strict=True):
        scales = [computed_scale(dtype, head) if given is None else single(given) for head in row]
        codes = b"".join(stored(dtype, head, scale) for head, scale in zip(row, scales, strict=True))
        scene.put(wanted, name, token, codes)
        scene.put(wanted, f"{name}_scale", token, struct.pack(f"<{len(scales)}f", *scales))
