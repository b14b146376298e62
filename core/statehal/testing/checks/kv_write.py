"""``KVWriter.write`` in the model's own dtypes."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.spec import Attention, Spec
from statehal.testing.check import check
from statehal.testing.draws import layer_features, layer_ids, neighbours, page_sizes, pick, storage
from statehal.testing.oracles.bytes import address, encoded, first_difference
from statehal.testing.target import Target

PLAIN = ("store:float32", "store:bfloat16", "store:float16")
"""Tags of the dtypes that need no cast."""


@dataclass(frozen=True)
class WriteCase:
    """Some tokens for one layer of an attention sub-pool.

    Attributes:
        tokens: of each row the token that it is stored at, of those allocated; -1 for padding.
        seed: of the values.
        strided: K and V are slices of one packed tensor.
        negative: padding is given as negative kernel ids, not as ids of the sink.
    """

    spec: Attention
    others: tuple[Spec, ...]
    page_size: int
    layer: int
    tokens: tuple[int, ...]
    seed: int
    strided: bool
    negative: bool
    id_dtype: torch.dtype

    @property
    def features(self) -> frozenset[str]:
        found = layer_features(self.spec.layers, self.page_size, self.others)
        found |= {self.spec.dtype, str(self.id_dtype).removeprefix("torch.")}
        found |= {"strided inputs"} if self.strided else set()
        found |= {"a negative id" if self.negative else "an id of the sink"} if -1 in self.tokens else set()
        found |= {"zero tokens"} if not self.tokens else {"one token"} if len(self.tokens) == 1 else set()
        found |= {"v_head_dim differs"} if self.spec.v_head_dim not in (None, self.spec.head_dim) else set()
        return frozenset(found)


@st.composite
def _cases(draw: DrawFn, tags: tuple[str, ...]) -> WriteCase:
    head_dim = draw(st.sampled_from([4, 6, 8]))
    layers = draw(layer_ids())
    spec = Attention(
        "kv",
        layers,
        draw(st.integers(1, 4)),
        head_dim,
        draw(storage(tags, "store:")),
        v_head_dim=draw(st.sampled_from([None, None, 4])),
    )
    count = draw(st.sampled_from([0, 1, 2, 7, 12]))
    places = draw(st.permutations(range(16)))[:count]
    tokens = tuple(place if draw(st.integers(0, 4)) else -1 for place in places)
    return WriteCase(
        spec,
        draw(neighbours()),
        draw(page_sizes()),
        draw(st.sampled_from(layers)),
        tokens,
        draw(st.integers(0, 999)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([torch.int32, torch.int64])),
    )


def cases(target: Target) -> Any:
    """Cases in the plain dtypes that the backend claims."""
    return _cases(tuple(tag for tag in PLAIN if tag in target.offers))


@check(
    "kv_write",
    needs=("kv.write",),
    cases=cases,
    features=(
        "page size 1", "page size 3", "page size 5", "page size 16", "one layer", "several layers", "61 layers",
        "a view of a bigger pool", "a negative id", "an id of the sink", "zero tokens", "one token",
        "strided inputs", "v_head_dim differs",
        "int32", "int64",
    ),
)  # fmt: skip
def check_rows_lie_at_their_addresses(target: Target, case: WriteCase) -> None:
    """A write stores each element at the address that the layout's integers give, and changes no other byte."""
    spec = case.spec
    pool = target.pool([spec, *case.others], tokens=48, requests=2, page_size=case.page_size)
    pages = pool.alloc(16, "kv")
    ids = pick(target, pool["kv"], pages, case.tokens, case.id_dtype, negative=case.negative)
    k, v = _rows(case)
    before = [k.clone(), v.clone()]
    wanted = target.image(pool)
    target.binding().kv(pool["kv"]).write(case.layer, ids, target.on_device(k), target.on_device(v))
    for name, rows in (("k", k), ("v", v)):
        field = pool["kv"].layout.field(name)
        for n, token in enumerate(case.tokens):
            if token < 0:
                continue
            page = pool["kv"].member.table[pages.ids[token // case.page_size]]
            for head in range(rows.shape[1]):
                for dim in range(rows.shape[2]):
                    at = address(field, case.layer, page, token % case.page_size, (head, dim))
                    raw = encoded(float(rows[n, head, dim]), spec.dtype)
                    wanted[at : at + len(raw)] = raw
    different = first_difference(pool, wanted, target.image(pool))
    assert not different, different
    for name, rows, given in (("k", k, before[0]), ("v", v, before[1])):
        assert torch.equal(rows, given), f"the caller's {name} was changed"


def _rows(case: WriteCase) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers, exact in every dtype."""
    spec = case.spec
    widths = spec.head_dim, spec.v_head_dim or spec.head_dim
    generator = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, spec.dtype)
    packed = torch.randint(-99, 100, (len(case.tokens), spec.kv_heads, sum(widths)), generator=generator).to(dtype)
    k, v = packed.split(widths, -1)
    return (k, v) if case.strided else (k.contiguous(), v.contiguous())
