"""``rope_write``: rotated q, k and what is stored of them, against a loop over rows and pairs."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import statehal
from reference.fp8_oracle import FORMATS, Floats, quotient, scales_of
from reference.kv_oracle import LAYERS, LAYOUTS, Rig, raw, rig
from reference.rope_oracle import Rope, rounded, table
from statehal.errors import ArgumentError
from statehal.hookspecs import KVWriter

QUERIES, LENGTH = 4, 40
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def noise(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@dataclass
class Call:
    """The arguments of a ``rope_write`` into a rig, and what must come of it."""

    made: Rig
    rope_dim: int
    dtype: torch.dtype
    options: dict[str, Any] = field(default_factory=dict)
    skip: tuple[int, ...] = ()
    check: bool = False

    def __post_init__(self) -> None:
        facts, count = self.made.facts, len(self.made.physical)
        heads, (width, v_width) = facts.heads, facts.widths
        self.q = noise(count, QUERIES, width, seed=1, dtype=self.dtype)
        self.k = noise(count, heads, width, seed=2, dtype=self.dtype)
        self.v = noise(count, heads, v_width, seed=3, dtype=self.dtype)
        self.cos_sin = table(LENGTH, self.rope_dim)
        shape = (3, count) if "rope_sections" in self.options else (count,)
        self.positions = torch.randint(0, LENGTH, shape, generator=torch.Generator().manual_seed(4))

    @property
    def writer(self) -> KVWriter:
        return statehal.bind("cpu", "reference", check=self.check).kv(self.made.sub)

    def run(self, layer: int = 1, **more: Any) -> Tensor:
        """Call it for one of the layers."""
        arguments = self.q, self.k, self.v, self.positions, self.cos_sin
        return self.writer.rope_write(LAYERS[layer], self.made.ids, *arguments, **(self.options | more))

    def expected(self) -> tuple[Tensor, Tensor]:
        """Rotated q and k, unrounded."""
        rope = Rope(
            self.cos_sin.double().tolist(),
            self.options.get("interleaved", False),
            self.options.get("rope_sections", ()),
            self.options.get("eps", 1e-6),
        )
        q_norm, k_norm = self.options.get("q_norm"), self.options.get("k_norm")
        inside = self.positions.clamp(0, LENGTH - 1)
        return rope(self.q, q_norm, inside), rope(self.k, k_norm, inside)

    def stored(self, wide: Tensor, exact: Tensor | None, scale: float | None) -> Tensor:
        """Rows as the field has them: those given, rounded, or divided and encoded."""
        name = self.made.sub.spec.fields()[0].dtype
        if name not in FORMATS:
            return exact if exact is not None else rounded(wide, self.dtype)
        values = wide.to(torch.float32).numpy()
        return torch.from_numpy(FORMATS[name].encode(quotient(values, 1.0 if scale is None else scale)))

    def verify(self, layer: int = 1) -> Tensor:
        """Run it and compare q, the whole buffer, and the arguments with what they were; gives q."""
        given = [raw(one) for one in (self.q, self.k, self.v, self.positions, self.cos_sin)]
        wide_q, wide_k = self.expected()
        image = self.made.image()
        k = self.stored(wide_k, None, self.options.get("k_scale"))
        v = self.stored(self.v.double(), self.v, self.options.get("v_scale"))
        for row, token in enumerate(self.made.physical):
            if row not in self.skip:
                self.made.put(image, 0, layer, token, k[row])
                self.made.put(image, 1, layer, token, v[row])
        q_out = self.run(layer)
        assert same(q_out, rounded(wide_q, self.dtype))
        assert self.made.image() == image
        assert [raw(one) for one in (self.q, self.k, self.v, self.positions, self.cos_sin)] == given
        return q_out


def same(got: Tensor, expected: Tensor) -> bool:
    """Equal in shape, dtype and every bit."""
    return got.dtype == expected.dtype and got.shape == expected.shape and raw(got) == raw(expected)


def call(name: str = "page-major NHD row", dtype: str = "bfloat16", rope_dim: int = 6, **more: Any) -> Call:
    options = {key: more.pop(key) for key in tuple(more) if key not in ("heads", "widths", "tokens", "storage")}
    storage = more.pop("storage", dtype)
    return Call(rig(name, 3, storage, **more), rope_dim, DTYPES[dtype], options)


def with_sections(sections: tuple[int, int, int] | None) -> dict[str, Any]:
    return {} if sections is None else {"rope_sections": sections}


SIZES = [(128, 64), (80, 80), (96, 96), (192, 192), (128, 128), (128, 80), (192, 2), (5, 4)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("width", "rope_dim"), SIZES)
def test_every_width(width: int, rope_dim: int, interleaved: bool, dtype: str) -> None:
    call(dtype=dtype, rope_dim=rope_dim, heads=2, widths=(width, 4), tokens=3, interleaved=interleaved).verify()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str, interleaved: bool) -> None:
    made = call(name, interleaved=interleaved)
    for layer in range(len(LAYERS)):
        made.verify(layer)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", [("q_norm",), ("k_norm",), ("q_norm", "k_norm")])
@pytest.mark.parametrize("weight", DTYPES.values())
def test_norms(dtype: str, weights: tuple[str, ...], weight: torch.dtype) -> None:
    options: dict[str, Any] = {name: noise(8, seed=n + 7, dtype=weight) for n, name in enumerate(weights)}
    call(dtype=dtype, rope_dim=4, widths=(8, 4), **options).verify()
    call(dtype=dtype, rope_dim=8, widths=(8, 4), eps=0.3, interleaved=True, **options).verify()


SECTIONS = [(2, 3, 1), (6, 0, 0), (0, 6, 0), (0, 0, 6), (1, 1, 4), (0, 2, 4)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("sections", SECTIONS)
def test_positions_in_three_rows(sections: tuple[int, int, int], interleaved: bool) -> None:
    call(rope_dim=12, widths=(16, 4), rope_sections=sections, interleaved=interleaved).verify()
    call(rope_dim=12, widths=(12, 4), rope_sections=list(sections), interleaved=interleaved, dtype="float32").verify()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_dtypes_of_the_table_and_the_positions(dtype: torch.dtype, index: torch.dtype) -> None:
    made = call()
    made.cos_sin, made.positions = table(LENGTH, 6, dtype), made.positions.to(index)
    made.verify()


@pytest.mark.parametrize("options", [{}, {"k_scale": 0.02}, {"k_scale": 0.3, "v_scale": 0.07}])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage", FORMATS)
def test_quantised_storage_takes_the_unrounded_value(storage: str, dtype: str, options: dict[str, Any]) -> None:
    made = call(dtype=dtype, storage=storage, rope_dim=8, heads=3, widths=(12, 4), **options)
    made.options["k_norm"] = noise(12, seed=9, dtype=torch.float32) * (1 if options else 50)
    made.verify()


def test_rounding_to_the_model_s_dtype_first_would_be_seen() -> None:
    made = call(storage="float8_e4m3fn", rope_dim=64, heads=4, widths=(64, 4))
    wide = made.expected()[1]
    codes = [FORMATS["float8_e4m3fn"].encode(one.float().numpy()) for one in (wide, rounded(wide, torch.bfloat16))]
    assert (codes[0] != codes[1]).any()


@pytest.mark.parametrize("storage", FORMATS)
def test_scales_that_are_computed_are_those_of_the_unrounded_rows(storage: str) -> None:
    hal = statehal.bind("cpu", "reference")
    spec = statehal.Attention("kv", LAYERS, 2, 8, storage, v_head_dim=4, scales="per_token_head")
    pool = hal.allocate(hal.plan([spec], tokens=16, page_size=4))
    sub = pool["kv"]
    ids = sub.kernel_ids(pool.alloc(5).token_ids())
    q, k, v = (
        noise(5, heads, dim, seed=n, dtype=torch.bfloat16) for n, (heads, dim) in enumerate(((4, 8), (2, 8), (2, 4)))
    )
    cos_sin, positions = table(LENGTH, 6), torch.arange(5)
    wide = Rope(cos_sin.double().tolist())(k, None, positions)
    hal.kv(sub).rope_write(LAYERS[0], ids, q, k, v, positions, cos_sin, v_scale=0.5)
    halves: Floats = torch.full((5, 2), 0.5).numpy()
    scales = {"k": scales_of(wide.float().numpy(), FORMATS[storage].largest), "v": halves}
    for name, rows in (("k", wide), ("v", v)):
        got = sub.view(name, LAYERS[0])[ids.of(sub.layout.form(name))].view(torch.uint8)
        kept = sub.view(f"{name}_scale", LAYERS[0])[ids.of(sub.layout.form(f"{name}_scale"))]
        assert raw(kept) == scales[name].tobytes()
        assert raw(got) == FORMATS[storage].encode(quotient(rows.float().numpy(), scales[name][..., None])).tobytes()


@pytest.mark.parametrize("storage", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("outs", [("q",), ("k",), ("q", "k")])
def test_outputs_may_be_the_inputs(outs: tuple[str, ...], storage: str) -> None:
    made, other = call(storage=storage), call(storage=storage)
    q, k = made.expected()
    expected = other.verify()
    given = {f"{name}_out": getattr(made, name) for name in outs}
    q_out = made.run(**given)
    assert (q_out is made.q) == ("q" in outs)
    assert same(q_out, expected)
    assert same(made.q, rounded(q, made.dtype) if "q" in outs else noise(*made.q.shape, seed=1, dtype=made.dtype))
    assert same(made.k, rounded(k, made.dtype) if "k" in outs else noise(*made.k.shape, seed=2, dtype=made.dtype))
    assert made.made.image() == other.made.image()


@pytest.mark.parametrize("mode", ["grad", "inference"])
def test_outputs_of_their_own_and_what_requires_gradients(mode: str) -> None:
    made, other = call(dtype="float32"), call(dtype="float32")
    expected = other.verify()
    q_out, k_out = torch.empty(10, QUERIES, 12)[::2, :, :6], torch.empty_like(made.k)
    with torch.inference_mode(mode == "inference"):
        if mode == "grad":
            made.q, made.k, made.v = (one.requires_grad_() * 1 for one in (made.q, made.k, made.v))
            made.options["q_norm"] = torch.nn.Parameter(torch.ones(6))
            other.options["q_norm"] = torch.ones(6)
            expected = other.verify()
        assert made.run(q_out=q_out, k_out=k_out) is q_out
        alone = made.run()
    for got in (q_out, alone):
        assert same(got, expected)
        assert not got.requires_grad
    assert same(k_out, rounded(other.expected()[1], torch.float32))
    assert made.made.image() == other.made.image()
    assert not made.made.pool.buffer.requires_grad


def test_outputs_are_written_outside_of_a_graph() -> None:
    """Autograd would refuse to write a leaf in place, and would record the write of any other tensor."""
    made, other = call(), call()
    expected = other.verify()
    q_out, k_out = torch.nn.Parameter(torch.zeros_like(made.q)), torch.zeros_like(made.k).requires_grad_() * 1
    history = k_out.grad_fn
    made.run(q_out=q_out, k_out=k_out)
    assert same(q_out, expected)
    assert k_out.grad_fn is history


@pytest.mark.parametrize("name", ["page-major NHD row", "token-major row", "nz page"])
def test_slices_of_a_packed_qkv(name: str) -> None:
    made = call(name, rope_dim=4)
    facts = made.made.facts
    sizes = [heads * width for heads, width in ((QUERIES, facts.widths[0]), *((facts.heads, w) for w in facts.widths))]
    packed = noise(10, sum(sizes), seed=6, dtype=torch.bfloat16)
    before = raw(packed)
    parts = packed[::2].split(sizes, -1)
    made.q, made.k, made.v = (
        part.unflatten(-1, (heads, -1)) for part, heads in zip(parts, (QUERIES, facts.heads, facts.heads), strict=True)
    )
    made.positions = made.positions.repeat_interleave(3)[::3]
    made.cos_sin = torch.cat([made.cos_sin, made.cos_sin.flip(0)], -1)[:, :4]
    made.verify()
    assert raw(packed) == before
    # in place: only the q and k of the rows in use change
    expected = packed.clone()
    q, k = (rounded(one, torch.bfloat16) for one in made.expected())
    expected[::2, : sizes[0]], expected[::2, sizes[0] : sizes[0] + sizes[1]] = q.flatten(1), k.flatten(1)
    made.run(q_out=made.q, k_out=made.k)
    assert same(packed, expected)


@pytest.mark.parametrize(("value", "check"), [(-1, False), (0, False), (10**6, False), (-1, True), (0, True)])
@pytest.mark.parametrize("storage", ["bfloat16", "int8"])
def test_padding_has_a_q_and_stores_nothing(storage: str, value: int, check: bool) -> None:
    """Under check, too, a position of a padding row may be anything."""
    made = call(storage=storage)
    made.check, made.skip = check, (1, 4)
    for tensor in made.made.ids.tensors:
        tensor[[1, 4]] = value
    made.positions[[1, 4]] = torch.tensor([-5, 10**9])
    made.v[[1, 4]] = float("nan")
    made.verify()


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("sections", [None, (1, 1, 1)])
def test_no_token_and_one_token(tokens: int, sections: tuple[int, int, int] | None) -> None:
    made = call(tokens=max(tokens, 1), **with_sections(sections))
    made.made.ids, made.made.physical = made.made.ids[:tokens], made.made.physical[:tokens]
    made.__post_init__()
    assert made.verify().shape == (tokens, QUERIES, 6)


def test_64_heads_of_128() -> None:
    call(rope_dim=64, heads=64, widths=(128, 128), tokens=2).verify()


@pytest.mark.parametrize("position", [-1, LENGTH, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("sections", [None, (1, 0, 2)])
def test_a_position_outside_of_the_table(position: int, sections: tuple[int, int, int] | None) -> None:
    """The nearest end without checks; under check an error that says which, and nothing written."""
    made = call(**with_sections(sections))
    made.positions[..., 3] = position
    made.verify()
    made.check = True
    before, q, k = made.made.image(), raw(made.q), raw(made.k)
    place = "3" if sections is None else "0, 3"
    text = rf"^rope_write to layer 2 of 'kv': positions\[{place}\] is {position}: expected 0 to 39$"
    with pytest.raises(ArgumentError, match=text):
        made.run(q_out=made.q, k_out=made.k)
    assert (made.made.image(), raw(made.q), raw(made.k)) == (before, q, k)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_values(data: st.DataObject) -> None:
    """Subnormals, infinities, cancellation: one rounding of the exact sum of two exact products, or of its float64."""
    dtype = data.draw(st.sampled_from(sorted(DTYPES)))
    made = call(dtype=dtype, interleaved=data.draw(st.booleans()), tokens=2, heads=1, widths=(6, 2))
    numbers = st.floats(width=32, allow_nan=False)
    made.k = torch.tensor(data.draw(st.lists(numbers, min_size=12, max_size=12))).to(made.dtype).view(2, 1, 6)
    angles = data.draw(st.lists(st.floats(-1, 1, width=32), min_size=12, max_size=12))
    made.cos_sin, made.positions = torch.tensor(angles).view(2, 6), torch.tensor([1, 0])
    k_out = torch.empty_like(made.k)
    made.run(k_out=k_out)
    rope = Rope(made.cos_sin.double().tolist(), made.options["interleaved"])
    expected = rounded(rope(made.k, None, made.positions), made.dtype)
    assert (k_out.isnan() == expected.isnan()).all()
    assert same(k_out.nan_to_num(nan=1), expected.nan_to_num(nan=1))
    view = made.made.sub.view("k", LAYERS[1])[made.made.ids.of(made.made.sub.layout.form("k"))]
    assert same(view, k_out)
