"""A backend that computes norms and rotations in float32, as hardware does, passes the checks that have a tolerance."""

from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.mutant import MutantBackend, target
from statehal.reference import kv_writer
from statehal.reference.rope import Rotation
from statehal.testing import CHECKS
from statehal.testing.runner import judge

NAMES = [name for name, check in CHECKS.items() if check.topic in ("rope_write", "latent_write")]


def _norm(wide: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32, with the sum of squares taken one after another, which is the worst order."""
    rows = wide.float()
    total = torch.zeros_like(rows[..., 0])
    for at in range(rows.shape[-1]):
        total = total + rows[..., at] * rows[..., at]
    root = torch.rsqrt(total / rows.shape[-1] + torch.tensor(eps, dtype=torch.float32))
    return (rows * root[..., None] * weight.float()).double()


def _rotate(self: Rotation, wide: Tensor) -> Tensor:
    """In float32, with products rounded before they are summed."""
    cos, sin = self.cos.float()[:, None], self.sin.float()[:, None]
    turned, rest = wide.float().tensor_split([2 * cos.shape[-1]], -1)
    neighbours = (turned[..., 0::2], turned[..., 1::2]) if self.interleaved else turned.tensor_split(2, -1)
    first, second = neighbours
    pair = first * cos - second * sin, second * cos + first * sin
    joined = torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)
    return torch.cat([joined, rest], -1).double()


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_wide_enough(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_writer, "rms_norm", _norm)
    monkeypatch.setattr(Rotation, "__call__", _rotate)
    result = judge(CHECKS[name], target(MutantBackend()), profile_name="dev")
    assert result.status == "passed", result.message


def test_bfloat16_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(*arguments: Any) -> Tensor:
        return _norm(*arguments).bfloat16().double()

    monkeypatch.setattr(kv_writer, "rms_norm", narrow)
    result = judge(CHECKS["rope_write/heads_are_normalised_first"], target(MutantBackend()), shrink=False)
    assert (result.status, result.by) == ("failed", "assertion")
