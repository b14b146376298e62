"""``KVWriter.write`` in the model's own dtypes."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.spec import Attention
from statehal.testing.check import check
from statehal.testing.draws import page_sizes
from statehal.testing.kv.inputs import Inputs, heads, rows
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import ANY_PLAIN, FEATURES, PAGES, PLAIN, Setting, attention, claimed, settings
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.kv_rows import put, raw
from statehal.testing.target import Target

NEEDS = ("kv.write", ANY_PLAIN)


@st.composite
def _settings(draw: DrawFn, tags: tuple[str, ...], counts: tuple[int, ...] = (0, 1, 2, 7, 12)) -> Setting:
    return draw(settings(draw(attention(tags)), counts))


def cases(target: Target) -> Any:
    """Some rows in a plain dtype that the backend claims."""
    return _settings(claimed(target, PLAIN))


@check(
    "kv_write", needs=NEEDS, cases=cases,
    features=(*FEATURES, "strided inputs", "v_head_dim differs", "a layer that shares rows", "an extra field"),
)  # fmt: skip
def check_rows_lie_at_their_addresses(target: Target, case: Setting) -> None:
    """A write stores each element bit for bit at the address that the layout's integers give, and no other byte."""
    scene = Scene(target, case)
    assert isinstance(case.spec, Attention)
    packed, k, v = rows(case.spec, len(case.tokens), case.seed, False)
    inputs = Inputs(target, {"packed rows": packed, "k": k, "v": v})
    if case.strided:
        width = inputs["packed rows"].shape[1]
        k, v = heads(inputs["packed rows"][:, 2 : width - 1], True, k.shape[1:], v.shape[1:])  # type: ignore[arg-type]
    else:
        k, v = inputs["k"], inputs["v"]
    wanted = scene.image()
    scene.writer.write(case.layer, scene.ids, k, v)
    for name, given in (("k", k), ("v", v)):
        for row, token in zip(given, case.tokens, strict=True):
            scene.put(wanted, name, token, raw(row))
    scene.compare(wanted, f"after write to layer {case.layer} at tokens {case.tokens}")
    inputs.unchanged()


@dataclass(frozen=True)
class StepsCase:
    """Decode steps of a padded batch; rows of padding are NaN.

    Attributes:
        steps: how many writes there are, in layer after layer.
    """

    setting: Setting
    steps: int

    @property
    def features(self) -> frozenset[str]:
        return self.setting.features | {"40 steps" if self.steps == 40 else "few steps"}


@st.composite
def _steps(draw: DrawFn, tags: tuple[str, ...]) -> StepsCase:
    setting = draw(_settings(tags, (2, 4)))
    return StepsCase(setting, 40 if draw(st.integers(0, 3)) == 0 else draw(st.integers(2, 9)))


@check(
    "kv_write", needs=NEEDS, cases=lambda target: _steps(claimed(target, PLAIN)),
    features=("40 steps", "page size 1", "page size 3", "page size 16"),
)  # fmt: skip
def check_the_sink_stays_zero(target: Target, case: StepsCase) -> None:
    """Page 0 is zero for ever: any id of it, any negative id, and ids of unmapped or freed pages store nothing."""
    scene, setting = Scene(target, case.setting), case.setting
    spec, sub, size = setting.spec, scene.sub, setting.page_size
    assert isinstance(spec, Attention)
    freed = scene.pool.alloc(1, "kv")
    gone = freed.token_ids().tensors[0].tolist()
    scene.pool.free(freed)
    scene.pool.flush()
    wanted = scene.image()
    absent = [-1, -7, 0, size - 1, gone[0], 10**6]
    count = len(setting.tokens) + len(absent)
    held = scene.pages.token_ids().tensors[0].cpu()
    kept = [int(held[token]) if token >= 0 else 0 for token in setting.tokens]
    virtual = target.on_device(torch.tensor([*kept, *absent], dtype=setting.id_dtype))
    translated = sub.kernel_ids(sub.space("virtual").assume(virtual))
    padding = target.on_device(torch.tensor([False] * len(kept) + [True] * len(absent)))
    places = target.on_device(torch.tensor([-1, -7, 0, size - 1, -size, size // 2], dtype=setting.id_dtype))
    direct = sub.space("kernel").assume(*(torch.cat([one[: len(kept)], places]) for one in translated.tensors))
    for step in range(case.steps):
        layer = spec.layers[step % len(spec.layers)]
        _, k, v = (target.on_device(one) for one in rows(spec, count, setting.seed + step, False))
        k[padding] = v[padding] = float("nan")
        scene.writer.write(layer, (translated, direct)[step % 2], k, v)
        if step >= case.steps - len(spec.layers):
            for name, given in (("k", k), ("v", v)):
                for row, token in zip(given, setting.tokens, strict=False):
                    scene.put(wanted, name, token, raw(row), layer)
    scene.compare(wanted, f"after {case.steps} writes with padding")


SIZES = ((64, 128, 1), (64, 128, 9), (1, 8, 600), (3, 2, 257), (8, 4, 130))
"""Heads, dim and tokens: more heads, or more rows, than a fixed grid of 512 work items holds."""


@dataclass(frozen=True)
class ManyCase:
    """Rows of one size, in the order of their tokens or in reverse."""

    dtype: str
    size: tuple[int, int, int]
    page_size: int
    backwards: bool
    seed: int

    @property
    def features(self) -> frozenset[str]:
        return frozenset(("{} heads of {}, {} tokens".format(*self.size), f"page size {self.page_size}"))


@st.composite
def _many(draw: DrawFn, tags: tuple[str, ...]) -> ManyCase:
    dtype = draw(st.sampled_from(tags)).removeprefix("store:")
    size = draw(st.sampled_from(SIZES))
    return ManyCase(dtype, size, draw(st.sampled_from([3, 16])), draw(st.booleans()), draw(st.integers(0, 1)))


@check(
    "kv_write", needs=NEEDS, cases=lambda target: _many(claimed(target, PLAIN)),
    features=tuple("{} heads of {}, {} tokens".format(*size) for size in SIZES),
)  # fmt: skip
def check_every_row_of_a_big_call_is_stored(target: Target, case: ManyCase) -> None:
    """A write stores all heads of all tokens, however many there are."""
    many, dim, count = case.size
    spec = Attention("kv", (1, 0), many, dim, case.dtype)
    pool = target.pool([spec], tokens=count + 2 * case.page_size, page_size=case.page_size)
    sub, pages = pool["kv"], pool.alloc(count, "kv")
    virtual = pages.token_ids()
    tokens = list(range(count))[:: -1 if case.backwards else 1]
    order = target.on_device(torch.tensor(tokens))
    ids = sub.kernel_ids(virtual)[order]
    _, k, v = (target.on_device(one) for one in rows(spec, count, case.seed, False))
    wanted = target.image(pool)
    target.binding().kv(sub).write(0, ids, k, v)
    for name, given in (("k", k), ("v", v)):
        for row, token in zip(given, tokens, strict=True):
            page, place = divmod(token, case.page_size)
            put(wanted, sub.layout.field(name), 0, (sub.member.table[pages.ids[page]], place), raw(row))
    different = first_difference(pool, wanted, target.image(pool))
    assert not different, f"after a write of {count} tokens of {many} heads of {dim}: {different}"


@dataclass(frozen=True)
class TurnsCase:
    """Writes in turn, to layers of two sub-pools of different row widths in one pool.

    Attributes:
        turns: of each write the sub-pool, the layer, and the tokens.
    """

    specs: tuple[Attention, ...]
    page_size: int
    turns: tuple[tuple[str, int, tuple[int, ...]], ...]
    seed: int

    @property
    def features(self) -> frozenset[str]:
        names, layers = {name for name, *_ in self.turns}, {layer for _, layer, _ in self.turns}
        found = {"two sub-pools"} if len(names) == 2 else set()
        found |= {"several layers"} if len(layers) > 1 else set()
        found |= {"a layer that shares rows"} if 9 in layers else set()
        return frozenset(found | {f"page size {self.page_size}"})


@st.composite
def _turns(draw: DrawFn, tags: tuple[str, ...]) -> TurnsCase:
    dtype, other = (draw(st.sampled_from(tags)).removeprefix("store:") for _ in range(2))
    full = Attention("full", (0, 4, 2), 2, 8, dtype, v_head_dim=4, shared=((9, 4),))
    window = Attention("window", (1, 3), draw(st.integers(1, 3)), 4, other, window=8)
    layers = {"full": (0, 4, 2, 9), "window": (1, 3)}
    turns = []
    for _ in range(draw(st.integers(2, 6))):
        name = draw(st.sampled_from(["full", "window"]))
        tokens = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
        turns.append((name, draw(st.sampled_from(layers[name])), tuple(tokens)))
    return TurnsCase((full, window), draw(page_sizes()), tuple(turns), draw(st.integers(0, 99)))


@check(
    "kv_write", needs=NEEDS, cases=lambda target: _turns(claimed(target, PLAIN)),
    features=(*PAGES, "two sub-pools", "several layers", "a layer that shares rows"),
)  # fmt: skip
def check_writes_in_turn_keep_each_other(target: Target, case: TurnsCase) -> None:
    """Writes to layers and sub-pools in any order keep what the others stored; layers that share rows share bytes."""
    pool = target.pool(case.specs, tokens=64, page_size=case.page_size)
    hole = pool.alloc(1, "window")
    pages = pool.alloc(10)
    pool.free(hole)
    writers = {name: target.binding().kv(pool[name]) for name in ("full", "window")}
    ids = {name: pool[name].kernel_ids(pages.token_ids()) for name in writers}
    wanted = target.image(pool)
    for turn, (name, layer, tokens) in enumerate(case.turns):
        sub = pool[name]
        assert isinstance(sub.spec, Attention)
        _, k, v = (target.on_device(one) for one in rows(sub.spec, len(tokens), case.seed + turn, False))
        writers[name].write(layer, ids[name][target.on_device(torch.tensor(tokens))], k, v)
        for field, given in (("k", k), ("v", v)):
            for row, token in zip(given, tokens, strict=True):
                page, place = divmod(token, case.page_size)
                put(wanted, sub.layout.field(field), layer, (sub.member.table[pages.ids[page]], place), raw(row))
        different = first_difference(pool, wanted, target.image(pool))
        assert not different, f"after write {turn + 1} of {case.turns}: {different}"
