"""A call of ``rope_write``, and what must come of it; tolerances are those of the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from statehal.spec import Attention
from statehal.testing.kv.angles import Turn, weight
from statehal.testing.kv.inputs import Inputs, heads
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import Setting
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.kv_rows import raw
from statehal.testing.oracles.rope import Near, misses
from statehal.testing.target import Target

Out = Literal["none", "given", "input"]


@dataclass(frozen=True)
class RopeCase:
    """Arguments of a call.

    Attributes:
        given: dtype of q, k and v.
        heads: of q.
        norms: dtypes of the weights of q's and k's norm, or ``None``.
        outs: of q and of k: no output, one of its own, or the input itself.
        scales: of K and V.
    """

    setting: Setting
    turn: Turn
    given: str
    heads: int
    norms: tuple[str | None, str | None] = (None, None)
    eps: float = 1e-6
    outs: tuple[Out, Out] = ("none", "none")
    scales: tuple[float | None, float | None] = (None, None)

    @property
    def spec(self) -> Attention:
        """Of the sub-pool."""
        assert isinstance(self.setting.spec, Attention)
        return self.setting.spec

    @property
    def features(self) -> frozenset[str]:
        found = set(self.setting.features | self.turn.features) | {f"{self.given} rows"}
        found |= {"rope_dim below head_dim"} if self.turn.rope_dim < self.spec.head_dim else set()
        found.add(f"rope_dim {self.turn.rope_dim} of {self.spec.head_dim}")
        found |= {f"{name} normed" for name, norm in zip("qk", self.norms, strict=True) if norm}
        found |= {f"{name}_out {out}" for name, out in zip("qk", self.outs, strict=True)}
        return frozenset(found)


class Call:
    """A call made, and what it gave."""

    def __init__(self, target: Target, case: RopeCase) -> None:
        self.case, self.scene = case, Scene(target, case.setting)
        spec, count, seed = case.spec, len(case.setting.tokens), case.setting.seed
        values = spec.kv_heads, spec.v_head_dim or spec.head_dim
        shapes = (case.heads, spec.head_dim), (spec.kv_heads, spec.head_dim), values
        packed = _packed(case, sum(many * dim for many, dim in shapes))
        given = {"packed": packed}
        if not case.setting.strided:
            given = dict(zip("qkv", heads(packed, False, *shapes), strict=True))
        given |= {"positions": case.turn.positions(count, seed), "cos_sin": case.turn.table()}
        for name, dtype in zip(("q_norm", "k_norm"), case.norms, strict=True):
            if dtype is not None:
                given[name] = weight(spec.head_dim, dtype, seed + len(given))
        self.inputs = Inputs(target, given)
        if case.setting.strided:
            self.q, self.k, self.v = heads(self.inputs["packed"], True, *shapes)
        else:
            self.q, self.k, self.v = (self.inputs[name] for name in "qkv")
        self.before = {"q": self.q.cpu().double(), "k": self.k.cpu().double(), "v": self.v.cpu().clone()}
        self.wanted = self.scene.image()
        self.outs = self._options()
        arguments = self.q, self.k, self.v, self.inputs["positions"], self.inputs["cos_sin"]
        self.result = self.scene.writer.rope_write(case.setting.layer, self.scene.ids, *arguments, **self.outs)
        self._due: dict[str, list[list[Near]]] = {}
        self.found = self.scene.image()

    def _options(self) -> dict[str, Any]:
        """Keyword arguments, outputs among them."""
        case = self.case
        options: dict[str, Any] = {"interleaved": case.turn.interleaved, "eps": case.eps}
        if case.turn.sections:
            options["rope_sections"] = case.turn.sections
        options |= {name: self.inputs[name] for name in ("q_norm", "k_norm") if name in self.inputs.tensors}
        options |= {name: by for name, by in zip(("k_scale", "v_scale"), case.scales, strict=True) if by is not None}
        for name, out, rows in zip(("q_out", "k_out"), case.outs, (self.q, self.k), strict=True):
            if out == "input":
                options[name] = rows
            elif out == "given":
                options[name] = torch.full_like(rows, 77.0, memory_format=torch.contiguous_format)
        return options

    def expected(self, name: Literal["q", "k"]) -> list[list[Near]]:
        """Unrounded heads by token."""
        if name in self._due:
            return self._due[name]
        case, norm = self.case, f"{name}_norm"
        oracle = case.turn.oracle(case.eps)
        by = self.inputs[norm].cpu().double().tolist() if norm in self.inputs.tensors else None
        places = case.turn.rows(self.inputs["positions"].cpu())
        rows = self.before[name].tolist()
        self._due[name] = [
            [oracle.head(head, by, place) for head in row] for row, place in zip(rows, places, strict=True)
        ]
        return self._due[name]

    def judge_output(self, what: str, got: Tensor, due: Sequence[Sequence[Near]]) -> None:
        """Fail where an output is not the rounded one."""
        dtype = self.case.given
        assert got.dtype == getattr(torch, dtype), f"{what} is of {got.dtype}: expected {dtype}"
        values = got.detach().cpu().double().tolist()
        assert len(values) == len(due), f"{what} has {len(values)} tokens: expected {len(due)}"
        for token, (rows, nears) in enumerate(zip(values, due, strict=True)):
            for head, (row, near) in enumerate(zip(rows, nears, strict=True)):
                for dim, (one, value, slack) in enumerate(zip(row, near.values, near.slack, strict=True)):
                    if misses(one, value, slack, dtype):
                        raise AssertionError(
                            f"{what}[{token}, {head}, {dim}] is {one!r}: expected {value!r} rounded once to {dtype}, "
                            f"give or take {slack:.3g}"
                        )

    def judge_q(self) -> None:
        """Fail unless q is right where it was to go, and nothing else of the caller's has changed."""
        due = self.expected("q")
        self.judge_output("the result", self.result, due)
        if "q_out" in self.outs:
            self.judge_output("q_out", self.outs["q_out"], due)
            same = self.result.data_ptr() == self.outs["q_out"].data_ptr() or not len(self.result)
            assert same, "the result is another tensor than q_out"
        if "k_out" in self.outs:
            self.judge_output("k_out", self.outs["k_out"], self.expected("k"))
        changed = {name for name, out in zip("qk", self.case.outs, strict=True) if out == "input"}
        self.inputs.unchanged(*changed, *(("packed",) if changed else ()))
        assert raw(self.v) == raw(self.before["v"]), "the caller's v was changed"
        for name, rows in (("q", self.q), ("k", self.k)):
            if name not in changed:
                assert raw(rows.cpu().double()) == raw(self.before[name]), f"the caller's {name} was changed"

    def rows(self, name: str) -> list[tuple[int, int, bytes]]:
        """Index, token and bytes of the rows that were stored."""
        tokens = enumerate(self.case.setting.tokens)
        return [(n, token, self.scene.get(self.found, name, token)) for n, token in tokens if token >= 0]

    def judge_stored(self) -> None:
        """Fail unless K is the rotated one and V as given, at their addresses, and no other byte changed."""
        dtype, due = self.case.given, self.expected("k")
        size = self.k.element_size()
        for n, token, data in self.rows("k"):
            got = torch.frombuffer(bytearray(data), dtype=self.k.dtype).view(1, *self.k.shape[1:])
            self.judge_output(f"K of token {token}, stored", got, due[n : n + 1])
            if "k_out" in self.outs:
                assert raw(self.outs["k_out"][n]) == data, f"k_out[{n}] has other bits than K of token {token}"
            assert len(data) == size * self.k[n].numel(), f"a row of {dtype} has {len(data)} bytes"
            self.scene.put(self.wanted, "k", token, data)
        for n, token, _ in self.rows("v"):
            self.scene.put(self.wanted, "v", token, raw(self.v[n]))
        self.compare()

    def compare(self) -> None:
        """Compare what remains."""
        different = first_difference(self.scene.pool, self.wanted, self.found)
        assert not different, f"after rope_write: {different}"


def _packed(case: RopeCase, width: int) -> Tensor:
    """Rows ``[tokens, width]`` of several magnitudes; the last is zero, of which a norm is zero too."""
    generator, count = torch.Generator().manual_seed(case.setting.seed), len(case.setting.tokens)
    rows = torch.randn(count, width, generator=generator)
    rows *= 2.0 ** torch.randint(-6, 7, (count, 1), generator=generator)
    if count > 1:
        rows[-1] = 0.0
    return rows.to(getattr(torch, case.given))
