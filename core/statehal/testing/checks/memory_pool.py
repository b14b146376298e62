"""Kernel ids of a pool, by the backend's ``translate`` and ``update_table``."""

from dataclasses import dataclass
from typing import Literal

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.spec import Attention
from statehal.testing.check import check
from statehal.testing.oracles.layouts import numbered
from statehal.testing.target import Target


@dataclass(frozen=True)
class PoolCase:
    """Handles of tokens in a pool with rows of several widths; the first of them is freed before translation."""

    page_size: int
    tokens: tuple[int, ...]
    unit: Literal["tokens", "pages"]
    dtype: torch.dtype

    @property
    def features(self) -> frozenset[str]:
        return frozenset({self.unit, f"page size {self.page_size}", str(self.dtype).removeprefix("torch.")})


@st.composite
def _pools(draw: DrawFn) -> PoolCase:
    return PoolCase(
        draw(st.sampled_from([1, 3, 5, 16])),
        tuple(draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))),
        draw(st.sampled_from(["tokens", "pages"])),
        draw(st.sampled_from([torch.int32, torch.int64])),
    )


@check(
    "memory_ops",
    needs=("memory.translate", "memory.update_table"),
    cases=lambda target: _pools(),
    features=("tokens", "pages", "page size 1", "page size 3", "page size 5", "page size 16", "int32", "int64"),
)
def check_kernel_ids_of_a_pool_index_their_own_width(target: Target, case: PoolCase) -> None:
    """In a pool, rows of every width have ids of their own; freed ids become the sink, and ``out`` keeps its place."""
    spec = Attention("kv", (0, 3), 2, 6, "float32", v_head_dim=4, scales="per_token_head")
    other = Attention("other", (1,), 1, 8, "float32")
    pool = target.pool([spec, other], tokens=64, page_size=case.page_size, waste_limit=0.9)
    sub, size = pool["kv"], case.page_size
    handles = [pool.alloc(count, "kv") for count in case.tokens]
    virtual = [(one.token_ids() if case.unit == "tokens" else one.page_ids()).tensors[0].tolist() for one in handles]
    tables = [[sub.member.table[page] for page in handle.ids] for handle in handles]
    pool.free(handles[0])
    for n, (mine, pages) in enumerate(zip(virtual, tables, strict=True)):
        ids = sub.space("virtual", case.unit).assume(target.on_device(torch.tensor(mine, dtype=case.dtype)))
        out = sub.kernel_buffer(len(mine), unit=case.unit, dtype=case.dtype)
        addresses = [tensor.data_ptr() for tensor in out.tensors]
        found = sub.kernel_ids(ids, out=out)
        assert found is out and [tensor.data_ptr() for tensor in out.tensors] == addresses, "out was not kept"  # noqa: PT018
        for field in sub.layout.fields:
            for kind in sub.layout.kinds(field.name):
                got = found.of(sub.layout.form(field.name, kind)).tolist()
                wanted = []
                for j in range(len(mine)):
                    token = case.unit == "tokens"
                    page, place = (pages[j // size], j % size) if token else (pages[j], 0)
                    page = page if n else 0  # the first handle was freed
                    whole = numbered(field, kind, page, 0)
                    wanted.append((whole if token or kind == "row" else whole // size) + place)
                assert got == wanted, (
                    f"{kind} ids of {field.name!r} for {case.unit} {mine} in pages {pages if n else 'that were freed'} "
                    f"(page size {size}, pages {field.page_stride} bytes apart): {got}, expected {wanted}"
                )
