"""A call of ``write_latent``, and what must come of it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from statehal.spec import Latent
from statehal.testing.kv.angles import NO_TURN, Turn, weight
from statehal.testing.kv.inputs import Inputs
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import Setting
from statehal.testing.oracles.bytes import first_difference
from statehal.testing.oracles.rope import Near, Rope
from statehal.testing.target import Target


@dataclass(frozen=True)
class LatentCase:
    """Arguments of a call.

    Attributes:
        given: dtype of ``kv_c`` and ``k_pe``.
        axes: of ``k_pe``: 2, or 3 with one head.
        norm: dtype of the weight, or ``None``.
        scale: of the row.
        as_tensor: the scale is given as a tensor.
    """

    setting: Setting
    given: str
    axes: int
    norm: str | None = None
    eps: float = 1e-6
    turn: Turn = NO_TURN
    scale: float | None = None
    as_tensor: bool = False

    @property
    def spec(self) -> Latent:
        """Of the sub-pool."""
        assert isinstance(self.setting.spec, Latent)
        return self.setting.spec

    @property
    def features(self) -> frozenset[str]:
        found = set(self.setting.features | self.turn.features)
        found |= {f"{self.given} rows", f"k_pe of {self.axes} axes", "a norm" if self.norm else "no norm"}
        found |= (
            {"no scale"} if self.scale is None else {f"a scale {'in a tensor' if self.as_tensor else 'as a number'}"}
        )
        return frozenset(found | ({"both"} if self.norm and self.turn.rope_dim else set()))


class Call:
    """A call made: the bytes before it, what was found after it, and what is due."""

    def __init__(self, target: Target, case: LatentCase, packed: Tensor) -> None:
        self.case, self.scene = case, Scene(target, case.setting)
        rank, seed = case.spec.kv_lora_rank, case.setting.seed
        given = {"rows": packed}
        if not case.setting.strided:
            given = {"kv_c": packed[:, :rank].clone(), "k_pe": packed[:, rank:].clone()}
        if case.norm:
            given["norm"] = weight(rank, case.norm, seed)
        if case.turn.rope_dim:
            given |= {"positions": case.turn.positions(len(packed), seed), "cos_sin": case.turn.table()}
        if case.as_tensor and case.scale is not None:
            given["scale"] = torch.tensor([case.scale])
        inputs = Inputs(target, given)
        strided = case.setting.strided
        kv_c = inputs["rows"][:, :rank] if strided else inputs["kv_c"]
        k_pe = inputs["rows"][:, rank:] if strided else inputs["k_pe"]
        options: dict[str, Any] = {
            name: inputs[name] for name in ("norm", "positions", "cos_sin", "scale") if name in given
        }
        options |= {"eps": case.eps} if case.norm else {}
        options |= {"interleaved": case.turn.interleaved} if case.turn.rope_dim else {}
        options |= {"scale": case.scale} if case.scale is not None and not case.as_tensor else {}
        self.wanted = self.scene.image()
        k_pe = k_pe.unsqueeze(1) if case.axes == 3 else k_pe
        self.scene.writer.write_latent(case.setting.layer, self.scene.ids, kv_c, k_pe, **options)
        self.found = self.scene.image()
        inputs.unchanged()
        self.due = [self._near(row, n, given) for n, row in enumerate(packed.double().tolist())]

    def _near(self, row: list[float], n: int, given: dict[str, Tensor]) -> Near:
        """A row unrounded."""
        case, rank = self.case, self.case.spec.kv_lora_rank
        by = given["norm"].double().tolist() if case.norm else None
        content = Rope(eps=case.eps).head(row[:rank], by, None)
        places = case.turn.rows(given["positions"])[n] if case.turn.rope_dim else None
        key = case.turn.oracle().head(row[rank:], None, places)
        return Near(content.values + key.values, content.slack + key.slack)

    def rows(self) -> list[tuple[int, int, bytes]]:
        """Index, token and bytes of the rows that were stored."""
        tokens = enumerate(self.case.setting.tokens)
        return [(n, token, self.scene.get(self.found, "latent", token)) for n, token in tokens if token >= 0]

    def compare(self) -> None:
        """Compare all bytes with those wanted."""
        different = first_difference(self.scene.pool, self.wanted, self.found)
        assert not different, f"after write_latent: {different}"
