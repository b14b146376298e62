"""``write_latent`` with a norm, a rotation and one-byte storage, against loops over rows."""

from typing import Any

import pytest
import torch
from torch import Tensor

import statehal
from reference.fp8_oracle import FORMATS, quotient
from reference.kv_oracle import bits, raw
from reference.rope_oracle import Rope, rounded, table
from statehal.errors import ArgumentError
from statehal.hookspecs import KVWriter
from statehal.ids import KernelIds
from statehal.pool import StatePool

RANK, ROPE, PAGE, LENGTH = 20, 6, 3, 40
ROW = RANK + ROPE
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class Rig:
    """A latent pool of one layer, full of random bytes; its rows follow each other from byte 0."""

    def __init__(self, storage: str, dtype: torch.dtype, *, check: bool = False) -> None:
        hal = statehal.bind("cpu", "reference", check=check)
        self.storage, self.dtype = storage, dtype
        self.pool: StatePool = hal.allocate(
            hal.plan([statehal.Latent("mla", (3,), RANK, ROPE, storage)], tokens=12, page_size=PAGE)
        )
        sub = self.pool["mla"]
        virtual = self.pool.alloc(5).token_ids()
        self.ids, self.physical = sub.kernel_ids(virtual), sub.physical_ids(virtual).tensor.tolist()
        self.writer: KVWriter = hal.kv(sub)
        size = getattr(torch, storage).itemsize
        self.row_bytes = ROW * size
        self.pool.buffer[PAGE * self.row_bytes :] = bits(
            self.pool.buffer.numel() - PAGE * self.row_bytes, dtype=torch.uint8, seed=1
        )
        generator = torch.Generator().manual_seed(2)
        self.kv_c, self.k_pe = (torch.randn(5, width, generator=generator).to(dtype) for width in (RANK, ROPE))
        self.positions = torch.randint(0, LENGTH, (5,), generator=generator)

    def pad(self, rows: list[int]) -> None:
        tensor = self.ids.tensor.clone()
        tensor[rows] = -1
        self.ids = KernelIds(self.ids.space, [tensor], self.ids.epoch)
        self.kv_c[rows] = float("nan")
        self.positions[rows] = -9

    def verify(self, skip: tuple[int, ...] = (), **options: Any) -> None:
        """Write, and compare every byte with the loop's; the arguments stay as they were."""
        rope, positions = Rope([[]]), None
        if "cos_sin" in options:
            rope, positions = (
                Rope(options["cos_sin"].double().tolist(), options.get("interleaved", False)),
                self.positions,
            )
            options["positions"] = positions
            positions = positions.clamp(0, LENGTH - 1)
        norm = Rope([[]], eps=options.get("eps", 1e-6))
        wide = torch.cat(
            [norm(self.kv_c[:, None], options.get("norm"), None), rope(self.k_pe[:, None], None, positions)], -1
        )[:, 0]
        rows = self.encoded(wide, options.get("scale"))
        image = bytearray(raw(self.pool.buffer))
        for row, token in enumerate(self.physical):
            if row not in skip:
                image[token * self.row_bytes : (token + 1) * self.row_bytes] = raw(rows[row])
        given = [raw(one) for one in (self.kv_c, self.k_pe, self.positions)]
        self.writer.write_latent(3, self.ids, self.kv_c, self.k_pe, **options)
        assert bytearray(raw(self.pool.buffer)) == image
        assert [raw(one) for one in (self.kv_c, self.k_pe, self.positions)] == given

    def encoded(self, wide: Tensor, scale: Any) -> Tensor:
        if self.storage not in FORMATS:
            return rounded(wide, self.dtype)
        divisor = 1.0 if scale is None else float(scale)
        return torch.from_numpy(FORMATS[self.storage].encode(quotient(wide.float().numpy(), divisor)))


def norm(dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.arange(RANK) / 7 - 1).to(dtype)


OPTIONS: dict[str, dict[str, Any]] = {
    "norm": {"norm": norm()},
    "norm in bfloat16": {"norm": norm(torch.bfloat16), "eps": 0.25},
    "rotation": {"cos_sin": table(LENGTH, ROPE)},
    "rotation of neighbours": {"cos_sin": table(LENGTH, ROPE), "interleaved": True},
    "rotation of a part": {"cos_sin": table(LENGTH, 4)},
    "both": {"norm": norm(), "cos_sin": table(LENGTH, ROPE, torch.bfloat16)},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_storage_of_the_model_s_own_dtype(options: dict[str, Any], dtype: str) -> None:
    Rig(dtype, DTYPES[dtype]).verify(**options)


@pytest.mark.parametrize("scale", [None, 0.07, torch.tensor([1.3])])
@pytest.mark.parametrize("options", [{}, OPTIONS["norm"], OPTIONS["both"]], ids=["none", "norm", "both"])
@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("storage", FORMATS)
def test_quantised_storage(storage: str, dtype: torch.dtype, options: dict[str, Any], scale: Any) -> None:
    Rig(storage, dtype).verify(**options, scale=scale)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("storage", ["bfloat16", "int8"])
def test_padding_in_the_middle(storage: str, check: bool) -> None:
    made = Rig(storage, torch.bfloat16, check=check)
    made.pad([1, 3])
    made.verify(skip=(1, 3), **OPTIONS["both"])


def test_a_position_outside_of_the_table() -> None:
    made = Rig("bfloat16", torch.bfloat16)
    made.positions[2] = LENGTH
    made.verify(**OPTIONS["rotation"])
    made = Rig("bfloat16", torch.bfloat16, check=True)
    made.positions[2] = LENGTH
    before = raw(made.pool.buffer)
    text = r"^write_latent to layer 3 of 'mla': positions\[2\] is 40: expected 0 to 39$"
    with pytest.raises(ArgumentError, match=text):
        made.verify(**OPTIONS["rotation"])
    assert raw(made.pool.buffer) == before


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_strided_rows_heads_and_gradients(options: dict[str, Any]) -> None:
    made, other = Rig("float32", torch.float32), Rig("float32", torch.float32)
    other.verify(**options)
    packed = torch.cat([made.kv_c, made.k_pe], -1).repeat_interleave(2, 0).requires_grad_()[::2] * 1
    given = dict(options)
    if "cos_sin" in given:
        given["positions"] = made.positions.int()
    if "norm" in given:
        given["norm"] = torch.nn.Parameter(given["norm"])
    made.writer.write_latent(3, made.ids, packed[:, :RANK], packed[:, None, RANK:], **given)
    assert raw(made.pool.buffer) == raw(other.pool.buffer)
    assert not made.pool.buffer.requires_grad


@pytest.mark.parametrize("storage", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize(
    "options", [{"scale": 1.0}, {"norm": norm()}, {"positions": torch.arange(5), "cos_sin": table(9, 4)}]
)
def test_rows_that_are_quantised_already_are_not_computed_with(storage: str, options: dict[str, Any]) -> None:
    made = Rig(storage, torch.float32)
    before, dtype = raw(made.pool.buffer), getattr(torch, storage)
    text = rf"kv_c is {dtype} \[5, 20\] on cpu: expected torch.float32 or torch.bfloat16 or torch.float16 \[5, 20\]"
    with pytest.raises(ArgumentError, match=text):
        made.writer.write_latent(3, made.ids, made.kv_c.to(dtype), made.k_pe.to(dtype), **options)
    with pytest.raises(ArgumentError, match=r"k_pe is torch.float32 \[5, 6\] on cpu: expected torch.bfloat16 \[5, 6\]"):
        made.writer.write_latent(3, made.ids, made.kv_c.bfloat16(), made.k_pe, **options)
    assert raw(made.pool.buffer) == before


def test_no_token() -> None:
    made = Rig("float8_e4m3fn", torch.bfloat16)
    made.ids, made.physical = made.ids[:0], []
    made.kv_c, made.k_pe, made.positions = made.kv_c[:0], made.k_pe[:0], made.positions[:0]
    made.verify(**OPTIONS["both"], scale=2.0)
