"""A layout made by statehal beside the same one walked by the oracle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from layout import oracle
from layout.oracle import Element, Row
from statehal.layout import ConvStateLayout, PoolLayout, conv_window, layer_major, nz, page_major, token_major
from statehal.spec import Attention, ConvRecurrent, ExtraField, Latent, Spec

Groups = tuple[tuple[int, ...], ...]
"""Of each stored layer row, the model layer ids that use it."""

Kind = tuple[str, tuple[int, ...], str, Groups]
"""A kind of row: name, shape, dtype and layers."""

PAGE_SIZES = (1, 3, 16, 128)
ITEMSIZE = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}


@dataclass(frozen=True, repr=False)
class Case:
    """One layout, and the address of everything in it according to the oracle.

    Attributes:
        ids: of each field, the model layer ids of each stored layer row.
        address: ``(field, layer index, page, slot, element)`` to byte.
        steps: bytes between neighbouring slots by definition of the layout.
        dense: whether the rows of one page of a field have no holes between them.
        page_stride: bytes between pages of a field.
    """

    name: str
    layout: PoolLayout
    rows: tuple[Row, ...]
    ids: Mapping[str, Groups]
    page_size: int
    num_pages: int
    address: Callable[[str, int, int, int, Element], int]
    steps: dict[str, int]
    dense: Callable[[Row], bool]
    page_stride: Callable[[Row], int]

    def __repr__(self) -> str:
        fields = [(row.name, row.shape, row.itemsize, row.layers) for row in self.rows]
        return f"{self.name} ps={self.page_size} pages={self.num_pages} {fields} in {self.layout.page_bytes} bytes"

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    @property
    def size(self) -> int:
        """Elements of everything."""
        return self.num_pages * self.page_size * sum(row.layers * oracle.count(row.shape) for row in self.rows)


@dataclass(frozen=True)
class Kept:
    """What a spec keeps, as rows of the oracle and, of each, the model layer ids of each stored layer."""

    spec: Spec
    rows: tuple[Row, ...]
    ids: Mapping[str, Groups]


def keep(spec: Spec, rows: list[Kind]) -> Kept:
    ids = {name: layers for name, _, _, layers in rows}
    return Kept(spec, tuple(Row(name, shape, ITEMSIZE[dtype], len(ids), ids) for name, shape, dtype, ids in rows), ids)


def attention(
    layers: tuple[int, ...],
    kv_heads: int,
    head_dim: int,
    dtype: str = "bfloat16",
    *,
    v_head_dim: int | None = None,
    scales: bool = False,
    shared: tuple[tuple[int, int], ...] = (),
    extra: tuple[tuple[str, tuple[int, ...], str, tuple[int, ...] | None], ...] = (),
) -> Kept:
    """An attention spec and, written out again, the rows it keeps."""
    spec = Attention(
        "full",
        layers,
        kv_heads,
        head_dim,
        dtype,
        v_head_dim=v_head_dim,
        scales="per_token_head" if scales else None,
        shared=shared,
        extra=tuple(ExtraField(*one) for one in extra),
    )
    ids = with_sharers(layers, shared)
    rows: list[Kind] = [("k", (kv_heads, head_dim), dtype, ids), ("v", (kv_heads, v_head_dim or head_dim), dtype, ids)]
    if scales:
        rows += [("k_scale", (kv_heads,), "float32", ids), ("v_scale", (kv_heads,), "float32", ids)]
    rows += [(name, shape, kind, with_sharers(only or layers, shared)) for name, shape, kind, only in extra]
    return keep(spec, rows)


def latent(layers: tuple[int, ...], rank: int, rope: int, indexer: int = 0, dtype: str = "bfloat16") -> Kept:
    """A latent spec, with an indexer row of that many bytes beside it where that is not 0."""
    extra = (ExtraField("indexer", (indexer,), "uint8"),) if indexer else ()
    ids = with_sharers(layers, ())
    rows: list[Kind] = [("latent", (1, rank + rope), dtype, ids)]
    rows += [("indexer", (indexer,), "uint8", ids)] if indexer else []
    return keep(Latent("mla", layers, rank, rope, dtype, extra=extra), rows)


def with_sharers(layers: tuple[int, ...], shared: tuple[tuple[int, int], ...]) -> Groups:
    return tuple((owner, *(a for a, b in shared if b == owner)) for owner in layers)


def token_case(
    kept: Kept,
    constructor: str,
    page_size: int,
    *,
    order: str = "NHD",
    align: int = 1,
    num_pages: int = 2,
    widen: int = 0,
    offset: int = 0,
) -> Case:
    """A token layout; ``widen`` is in units that keep every element aligned, as is ``offset``."""
    rows, spec = list(kept.rows), kept.spec
    unit = oracle.common(align, *(row.itemsize for row in rows))
    if constructor == "layer_major":
        layout = layer_major(spec, page_size, order=order).resize(num_pages).at(offset * unit)  # type: ignore[arg-type]
        walked = oracle.layer_major(rows, page_size, num_pages, order)
        return Case(
            f"{constructor} {order}",
            layout,
            tuple(rows),
            kept.ids,
            page_size,
            num_pages,
            lambda f, layer, page, slot, e: offset * unit + walked.places[f, layer, page, slot, e],
            walked.steps,
            lambda row: True,
            lambda row: page_size * row.bytes(),
        )
    if constructor == "nz":
        layout = nz(spec, page_size, align=align)
        rows = [oracle.nz_row(row) for row in rows]
        page = oracle.page_major(rows, page_size, align=align, nz=True)
    elif constructor == "token_major":
        layout = token_major(spec, page_size, align=align)
        page = oracle.token_major(rows, page_size, align)
    else:
        layout = page_major(spec, page_size, order=order, align=align)  # type: ignore[arg-type]
        page = oracle.page_major(rows, page_size, order, align)
    assert layout.page_bytes == page.size
    return _repeated(
        f"{constructor} {order}", layout, rows, kept.ids, page_size, page, num_pages, page.size + widen * unit,
        offset * unit, constructor == "token_major",
    )  # fmt: skip


def conv_case(
    layers: tuple[int, ...],
    channels: int,
    width: int,
    *,
    order: str = "rows_first",
    verify_tokens: int = 1,
    state: tuple[int, ...] | None = None,
    dtype: str = "bfloat16",
    multiple: int = 1,
    align: int = 1,
    num_pages: int = 2,
    widen: int = 0,
    offset: int = 0,
) -> Case:
    """A conv + recurrent layout."""
    spec = ConvRecurrent("conv", layers, channels, width, dtype, verify_tokens=verify_tokens, state=state)
    layout = conv_window(spec, ConvStateLayout(order, multiple, align=align))  # type: ignore[arg-type]
    ids = tuple((layer,) for layer in layers)
    padded = channels
    while padded % multiple:
        padded += 1
    window = width - 1 + verify_tokens - 1
    shape = (window, padded) if order == "rows_first" else (padded, window)
    rows = [Row("conv", shape, ITEMSIZE[dtype], len(layers), ids)]
    if state is not None:
        rows.append(Row("state", state, 4, len(layers), ids))
    rows.append(Row("cursor", (1,), 4, 1, (layers,)))
    page = oracle.page_major(rows, 1, align=align)
    unit = oracle.common(align, *(row.itemsize for row in rows))
    known: Mapping[str, Groups] = {**{row.name: ids for row in rows[:-1]}, "cursor": (layers,)}
    assert layout.page_bytes == page.size
    return _repeated(
        f"conv_window {order}", layout, rows, known, 1, page, num_pages, page.size + widen * unit, offset * unit, False
    )


def _repeated(
    name: str,
    layout: PoolLayout,
    rows: list[Row],
    ids: Mapping[str, Groups],
    page_size: int,
    page: oracle.Page,
    num_pages: int,
    stride: int,
    offset: int,
    entries: bool,
) -> Case:
    """Pages of ``stride`` bytes one after another from ``offset``."""
    alone = len(rows) == 1 and rows[0].layers == 1
    return Case(
        name,
        layout.resize(num_pages, stride).at(offset),
        tuple(rows),
        ids,
        page_size,
        num_pages,
        lambda f, layer, number, slot, e: offset + number * stride + page.places[f, layer, slot, e],
        page.steps,
        # an entry has holes where other rows lie, and where it is padded
        lambda row: not entries or (alone and page.size == page_size * row.bytes()),
        lambda row: stride,
    )


EXTRA_ROWS = {
    "indexer": ((5,), "uint8"),
    "marks": ((3,), "int8"),
    "index": ((2, 3), "int32"),
    "half": ((3,), "bfloat16"),
    "step": ((1,), "int64"),
}


@st.composite
def token_cases(draw: st.DrawFn, most: int = 4000) -> Case:
    """Token layouts of every constructor, of at most ``most`` elements or so."""
    constructor = draw(st.sampled_from(["page_major", "token_major", "layer_major", "nz"]))
    page_size = draw(st.sampled_from(PAGE_SIZES))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "float8_e4m3fn", "int8"]))
    step = 32 // ITEMSIZE[dtype] if constructor == "nz" else 1
    heads = draw(st.sampled_from([1, 2, 3, 5]))
    dims = st.integers(1, 5) if step == 1 else st.sampled_from([step, 2 * step])
    head_dim, v_head_dim = draw(dims), draw(st.none() | dims)
    room = most // (2 * page_size * heads * (head_dim + (v_head_dim or head_dim)))
    layers = tuple(range(3, 3 + draw(st.integers(1, max(1, min(61, room))))))
    scales = constructor != "nz" and draw(st.booleans())
    some = layers[: (len(layers) + 1) // 2]
    names = draw(st.lists(st.sampled_from(list(EXTRA_ROWS)), unique=True, max_size=2)) if constructor != "nz" else []
    extra = tuple((name, *EXTRA_ROWS[name], draw(st.sampled_from([None, layers, some]))) for name in names)
    shared = draw(st.sampled_from([(), ((100, layers[0]),), ((100, layers[-1]), (101, layers[-1]))]))
    kept = attention(layers, heads, head_dim, dtype, v_head_dim=v_head_dim, scales=scales, shared=shared, extra=extra)
    return token_case(
        kept,
        constructor,
        page_size,
        order=draw(st.sampled_from(["NHD", "HND"])),
        align=1 if constructor == "layer_major" else draw(st.sampled_from([1, 1, 16, 24])),
        num_pages=draw(st.integers(1, 3)),
        widen=draw(st.integers(0, 9)),
        offset=draw(st.integers(0, 5)),
    )


@st.composite
def conv_cases(draw: st.DrawFn) -> Case:
    """Conv + recurrent layouts."""
    return conv_case(
        tuple(range(draw(st.integers(1, 9)))),
        draw(st.integers(1, 17)),
        draw(st.integers(2, 8)),
        order=draw(st.sampled_from(["rows_first", "channels_first"])),
        verify_tokens=draw(st.integers(1, 4)),
        state=draw(st.sampled_from([None, (2, 3, 5), (4,)])),
        dtype=draw(st.sampled_from(["float32", "bfloat16", "float8_e4m3fn"])),
        multiple=draw(st.sampled_from([1, 8])),
        align=draw(st.sampled_from([1, 1, 16, 24])),
        num_pages=draw(st.integers(1, 3)),
        widen=draw(st.integers(0, 9)),
        offset=draw(st.integers(0, 5)),
    )


def any_case() -> st.SearchStrategy[Case]:
    return token_cases() | conv_cases()
