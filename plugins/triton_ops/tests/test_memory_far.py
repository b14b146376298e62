"""Rows and pages that lie past 2**32 units: in a sparse file, of which only the touched parts take space."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from statehal.layout import FieldLayout, FormKind, PoolLayout
from statehal_triton_ops.memory_ops import TritonMemoryOps
from statehal_triton_ops.row_copies import RowCopies

pytestmark = pytest.mark.interpreted

OPS = TritonMemoryOps("cpu")
FAR = 2**32 + 2**31
"""Bytes between two rows: one of them lies past what 32 bits count, and wraps to another place than the others."""


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[torch.Tensor]:
    """Zeros, but for the first bytes."""
    path = tmp_path / "buffer"
    made = torch.from_file(str(path), shared=True, size=2 * FAR + 64, dtype=torch.uint8)
    made[:64] = torch.arange(100, 164, dtype=torch.uint8)
    yield made
    del made
    path.unlink()


def test_gather_and_scatter(buffer: torch.Tensor) -> None:
    view = buffer.as_strided((3, 3), (FAR, 1))
    OPS.scatter(view, torch.tensor([2, 1]), torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8), first=1)
    assert buffer[2 * FAR : 2 * FAR + 5].tolist() == [1, 2, 3, 0, 0]
    assert OPS.gather(view, torch.tensor([1, 0, 2])).tolist() == [[4, 5, 6], [100, 101, 102], [1, 2, 3]]
    assert buffer[:64].tolist() == list(range(100, 164))


def test_pages(buffer: torch.Tensor) -> None:
    view = buffer.as_strided((2, 3, 5), (7, FAR, 1))
    OPS.copy_pages((view,), torch.tensor([0, 0]), torch.tensor([2, 1]))
    for start in (FAR, 2 * FAR):
        assert buffer[start : start + 14].tolist() == [*range(100, 105), 0, 0, *range(107, 112), 0, 0]
    OPS.zero_pages((view,), torch.tensor([2]))
    assert not buffer[2 * FAR :].any()
    assert buffer[:64].tolist() == list(range(100, 164))


@pytest.mark.parametrize("kind", ["row", "page"])
def test_tokens(buffer: torch.Tensor, kind: FormKind) -> None:
    """Ids of the row form pass 32 bits themselves; those of the page form are small and their stride does."""
    field = FieldLayout("k", "uint8", ((0,), (1,)), (1,), (1,), (1,), (1,), 0, 3, FAR)
    layout = PoolLayout((field,), (("k", (kind,)),), 3)
    sub: Any = SimpleNamespace(layout=layout, forms=layout.address_forms, buffer=buffer)
    step = FAR if kind == "row" else 1
    buffer[FAR] = 7
    RowCopies(sub).copy((torch.tensor([2 * step, step]),), (torch.tensor([step, 3 * step]),))
    assert buffer[2 * FAR : 2 * FAR + 5].tolist() == [7, 0, 0, 0, 0]
    assert not buffer[FAR : FAR + 64].any()
    assert buffer[:64].tolist() == list(range(100, 164))


def test_ids_of_64_bits() -> None:
    ids, out = torch.tensor([5, 2**31 - 1, -1]), torch.empty(3, dtype=torch.int64)
    OPS.translate(ids, torch.tensor([0, 2**40, 0]), 4, (2**10,), (out,), "tokens")
    assert out.tolist() == [2**50 + 1, 3, 3]
    OPS.translate(ids * 2**20, None, 4, (2**10,), (out,), "tokens")
    assert out.tolist() == [5 * 2**28, 2**41, 0]
