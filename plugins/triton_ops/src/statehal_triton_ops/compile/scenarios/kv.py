"""KV writes: plain, with rotation, latent rows, moves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from statehal.hookspecs import KVWriteRequest
from statehal.ids import KernelIds
from statehal.layout import FormKind, PoolLayout, layer_major, nz, page_major, token_major, x_packed
from statehal.pool import SubPool
from statehal.spec import Attention, Latent, Spec
from statehal_triton_ops.compile.scenario import Scenario, pool_of, tensor
from statehal_triton_ops.compile.tunings import kv_tunings
from statehal_triton_ops.kv_writer import TritonKVWriter

LAYER, TOKENS, HEADS, Q_HEADS = 1, 4096, 8, 32
HEAD_DIMS = (64, 80, 96, 128, 192, 256)
QUANTISED = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int8")
AMD_STORED = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz")
MOVES = (4, 256, 4096, 5000)


def _page_major(spec: Spec, size: int) -> PoolLayout:
    """As backends on these kernels lay out pools: wide rows by row ids, with blocks for readers; scales by page."""
    made = page_major(spec, size, align=16)
    wide = {field.name: field.row_bytes for field in made.fields if not field.name.endswith("_scale")}
    forms: tuple[FormKind, ...] = ("row", "block") if len(set(wide.values())) == 1 else ("row",)
    return replace(made, forms=tuple((one.name, forms if one.name in wide else ("page",)) for one in made.fields))


LAYOUTS: dict[str, Callable[[Spec, int], PoolLayout]] = {
    "page-major": _page_major,
    "row": lambda spec, size: page_major(spec, size, align=16),
    "block HND": lambda spec, size: page_major(spec, size, order="HND", forms=("block",), align=16),
    "page": lambda spec, size: page_major(spec, size, forms=("page",), align=16),
    "token-major": lambda spec, size: token_major(spec, size, align=16),
    "layer-major": lambda spec, size: layer_major(spec, size),
    "nz": nz,
}

AMD: dict[str, Callable[[Spec, int], PoolLayout]] = {
    "x-packed": lambda spec, size: x_packed(spec, size, values="transposed", forms=("page", "block")),
    "shuffled": lambda spec, size: x_packed(spec, size, forms=("page", "block")),
}
"""Layouts of AMD's alone, in which an element of V lies beside those of other tokens."""


@dataclass(frozen=True)
class Case:
    """What a write is specialised for."""

    head_dim: int
    stored: str = "bfloat16"
    layout: str = "page-major"
    v_head_dim: int | None = None
    scales: bool = False
    model: str = "bfloat16"
    ids: str = "int64"

    @property
    def name(self) -> str:
        """For tables."""
        dims = f"{HEADS}x{self.head_dim}" + ("" if self.v_head_dim is None else f"/{self.v_head_dim}")
        model = [] if self.stored == self.model else [f"of {self.model}"]
        return " ".join([self.stored, *model, *(["scaled"] * self.scales), dims, self.layout, *(
            ["ids int32"] * (self.ids == "int32"))])  # fmt: skip


QUICK = (Case(128), Case(80, "float8_e4m3fn", "block HND"))


def scenarios() -> Iterator[Scenario]:
    """All of them; tuning entries after the first with the model's own dtype and one quantised alone."""
    first, further = slice(0, 1), slice(1, None)
    for case in _cases():
        yield Scenario(f"kv.write {case.name}", _run(case, first, _write), case in QUICK)
        yield Scenario(f"kv.rope_write {case.name}", _run(case, first, _rope_write), case in QUICK)
    for head_dim in HEAD_DIMS:
        for variant in ROPES:
            name = f"kv.rope_write {Case(head_dim).name} {variant.__name__.strip('_')}"
            yield Scenario(name, _run(Case(head_dim), first, variant))
        for case in (Case(head_dim), Case(head_dim, "float8_e4m3fn")):
            yield Scenario(f"kv.write {case.name} further tunings", _run(case, further, _write))
            yield Scenario(f"kv.rope_write {case.name} further tunings", _run(case, further, _rope_write))
    yield from _of_amd()
    for stored in ("bfloat16", *QUANTISED):
        yield Scenario(f"kv.write_latent {stored} 512+64", _latent(stored, first), stored == "bfloat16")
    yield Scenario("kv.write_latent bfloat16 512+64 further tunings", _latent("bfloat16", further))
    for layout in LAYOUTS:
        for case in (Case(128, layout=layout), Case(192, v_head_dim=128, layout=layout), *_scaled(layout)):
            yield Scenario(f"kv.move {case.name}", _run(case, first, _move), case == Case(128))


def _of_amd() -> Iterator[Scenario]:
    """They launch nothing for others."""
    for layout, head_dim, stored in product(AMD, HEAD_DIMS, AMD_STORED):
        case = Case(head_dim, stored, layout)
        calls = {"write": _write, "rope_write": _rope_write}
        if (head_dim, stored) == (128, "bfloat16"):
            calls["move"] = _move
        for name, call in calls.items():
            yield Scenario(f"kv.{name} {case.name}", _on_amd(_run(case, slice(0, 1), call)), scattered=True)


def _on_amd(run: Callable[[str], None]) -> Callable[[str], None]:
    return lambda family: run(family) if family.startswith("hip") else None


def _scaled(layout: str) -> tuple[Case, ...]:
    return () if layout == "nz" else (Case(128, "int8", layout, scales=True),)


def _cases() -> Iterator[Case]:
    for head_dim in HEAD_DIMS:
        yield Case(head_dim)
        for stored in QUANTISED:
            yield Case(head_dim, stored)
            yield Case(head_dim, stored, scales=True)
    for head_dim in (80, 128):
        for layout in LAYOUTS:
            if layout != "page-major":
                yield Case(head_dim, layout=layout)
                if (head_dim, layout) != (80, "nz"):  # its fractals have 32 bytes
                    yield Case(head_dim, "float8_e4m3fn", layout)
    yield Case(128, "float32", model="float32")
    yield Case(128, "float16", model="float16")
    yield Case(128, "int8", scales=True, model="float16")
    yield Case(128, ids="int32")
    yield Case(192, v_head_dim=128)
    yield Case(192, "float8_e4m3fn", v_head_dim=128, scales=True)


Calls = Callable[[TritonKVWriter, SubPool, Case], None]


def _run(case: Case, tunings: slice, calls: Calls) -> Callable[[str], None]:
    def run(family: str) -> None:
        spec = Attention(
            "full",
            layers=(0, LAYER),
            kv_heads=HEADS,
            head_dim=case.head_dim,
            v_head_dim=case.v_head_dim,
            dtype=case.stored,
            scales="per_token_head" if case.scales else None,
        )
        sub = pool_of([spec], layouts=(LAYOUTS | AMD)[case.layout])["full"]
        for tuning in kv_tunings(family)[tunings]:
            calls(TritonKVWriter(KVWriteRequest(sub, "meta"), tuning), sub, case)

    return run


def _ids(sub: SubPool, case: Case, count: int | None = None) -> KernelIds:
    return sub.kernel_buffer(TOKENS if count is None else count, dtype=getattr(torch, case.ids))


def _rows(case: Case, heads: int = HEADS, dim: int | None = None) -> torch.Tensor:
    return tensor(TOKENS, heads, dim or case.head_dim, dtype=case.model)


def _write(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    k, v, ids = _rows(case), _rows(case, dim=case.v_head_dim), _ids(sub, case)
    writer.write(LAYER, ids, k, v)
    if case.stored in QUANTISED:
        writer.write(LAYER, ids, k, v, k_scale=0.5, v_scale=0.5)
        writer.write(LAYER, ids, k, v, k_scale=tensor(1, dtype="float32"), v_scale=tensor(1, dtype="float32"))


def _rope_write(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    """Rotation alone; of quantised storage with a scale."""
    scale = tensor(1, dtype="float32") if case.stored in QUANTISED and not case.scales else None
    _rope(writer, sub, case, k_scale=scale, v_scale=scale)


def _normed(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    norm = tensor(case.head_dim, dtype=case.model)
    _rope(writer, sub, case, q_norm=norm, k_norm=norm)
    _rope(writer, sub, case, q_norm=norm, k_norm=norm, interleaved=True, k_out=_rows(case))


def _interleaved(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    _rope(writer, sub, case, interleaved=True)


def _partial(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    _rope(writer, sub, case, rope_dim=case.head_dim // 2)


def _sections(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    half = case.head_dim // 2
    _rope(writer, sub, case, rope_sections=(half // 2, half // 4, half - half // 2 - half // 4))


ROPES = (_normed, _interleaved, _partial, _sections)


def _rope(writer: TritonKVWriter, sub: SubPool, case: Case, *, rope_dim: int | None = None, **more: Any) -> None:
    q, k, v = _rows(case, Q_HEADS), _rows(case), _rows(case, dim=case.v_head_dim)
    positions = tensor(TOKENS, dtype="int64")
    if "rope_sections" in more:
        positions = tensor(3, TOKENS, dtype="int64")
    table = tensor(1 << 17, rope_dim or case.head_dim, dtype="float32")
    writer.rope_write(LAYER, _ids(sub, case), q, k, v, positions, table, **more)


def _latent(stored: str, tunings: slice) -> Callable[[str], None]:
    def run(family: str) -> None:
        spec = Latent("mla", layers=(0, LAYER), kv_lora_rank=512, qk_rope_head_dim=64, dtype=stored)
        sub = pool_of([spec], layouts=LAYOUTS["page-major"])["mla"]
        ids, kv_c, k_pe = sub.kernel_buffer(TOKENS), tensor(TOKENS, 512), tensor(TOKENS, 64)
        positions, table = tensor(TOKENS, dtype="int64"), tensor(1 << 17, 64, dtype="float32")
        scale = tensor(1, dtype="float32") if stored in QUANTISED else None
        for tuning in kv_tunings(family)[tunings]:
            writer = TritonKVWriter(KVWriteRequest(sub, "meta"), tuning)
            writer.write_latent(LAYER, ids, kv_c, k_pe, scale=scale)
            if stored in QUANTISED:
                writer.write_latent(LAYER, ids, tensor(TOKENS, 512, dtype=stored), tensor(TOKENS, 64, dtype=stored))
            for interleaved in (False, True):
                writer.write_latent(
                    LAYER, ids, kv_c, k_pe, norm=tensor(512), positions=positions, cos_sin=table,
                    interleaved=interleaved, scale=scale,
                )  # fmt: skip

    return run


def _move(writer: TritonKVWriter, sub: SubPool, case: Case) -> None:
    for count in MOVES:
        writer.move(_ids(sub, case, count), _ids(sub, case, count))
