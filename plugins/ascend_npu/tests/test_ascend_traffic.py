"""How many rows of C elements a verify and its commit read and write, counted where they are read and written.

The operator is the contract model, which computes outputs in one pass and writes windows in a second, and is given
memory that counts. Kernels are interpreted, with loads and stores that count. Torch's own operations may touch no row
at all. The formulas are those that are published for the protocols; nothing here evaluates one to get a count.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from ascend_rig import Requests
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from npu_contract_model import rows
from npu_contract_model.rows import Row, Rows
from statehal_ascend_npu.conv import launches

pytestmark = pytest.mark.interpreted

WIDTH = 4
VIEWS = {"as_strided", "detach", "slice", "alias", "view", "select", "_unsafe_view", "unsqueeze", "t"}


class Traffic:
    """Bytes of rows that were read and written, by whom."""

    def __init__(self, row_bytes: int) -> None:
        self.row_bytes = row_bytes
        self.operator = 0
        self.kernels = 0
        self.strays: list[str] = []

    @property
    def rows(self) -> float:
        """Row accesses."""
        assert not self.strays, f"torch read or wrote rows: {self.strays}"
        assert (self.operator + self.kernels) % self.row_bytes == 0
        return (self.operator + self.kernels) / self.row_bytes


class Watch(TorchDispatchMode):
    """Operations of torch that are given rows of the pool or of the inputs."""

    def __init__(self, run: Requests, traffic: Traffic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traffic, self.channels = traffic, run.spec.channels

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        given = [one for one in pytree.tree_leaves((args, kwargs, result)) if isinstance(one, Tensor) and one.dim()]
        if name not in VIEWS and name != "causal_conv1d" and any(one.shape[-1] == self.channels for one in given):
            self.traffic.strays.append(name)
        return result


@contextmanager
def counted(run: Requests, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    """Count within, whoever it is."""
    from triton.runtime.interpreter import InterpreterBuilder

    field = run.sub.layout.field("conv")
    traffic = Traffic(field.row_bytes // run.spec.window_rows)
    base = run.pool.buffer.data_ptr()
    windows = [
        (base + field.address(layer, slot), base + field.address(layer, slot) + field.row_bytes)
        for layer in run.spec.layers
        for slot in range(run.sub.layout.num_pages)
    ]

    class Counting(Rows):
        def read(self, *at: int) -> Row:
            traffic.operator += traffic.row_bytes
            return super().read(*at)

        def write(self, row: Row, *at: int) -> None:
            traffic.operator += traffic.row_bytes
            super().write(row, *at)

    def watch(name: str) -> None:
        original = getattr(InterpreterBuilder, name)

        def access(self: Any, ptrs: Any, *rest: Any) -> Any:
            mask = rest[1 if name.endswith("store") else 0]
            size = ptrs.get_element_ty().primitive_bitwidth // 8
            for pointer in ptrs.data[mask.data.astype(bool)].flatten():
                traffic.kernels += size * any(start <= int(pointer) < end for start, end in windows)
            return original(self, ptrs, *rest)

        monkeypatch.setattr(InterpreterBuilder, name, access)

    launch = launches._launch

    def unwatched(*arguments: Any, **constants: Any) -> None:
        with _disable_current_modes():  # the interpreter's own use of torch
            launch(*arguments, **constants)

    with monkeypatch.context() as patch:
        patch.setattr(rows, "made", Counting)
        patch.setattr(launches, "_launch", unwatched)
        monkeypatch = patch
        watch("create_masked_load")
        watch("create_masked_store")
        with Watch(run, traffic):
            yield traffic


def step(run: Requests, kept: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Row accesses of one request's verify and commit."""
    drafts = run.spec.verify_tokens
    more = run.rows(drafts)
    x, slot, accepted = run.x(more), run.slots[:1], torch.tensor([kept])
    (layer,) = run.spec.layers
    with counted(run, monkeypatch) as traffic:
        y = run.conv.verify(layer, x, slot)
        run.conv.commit(slot, accepted)
    assert y.tolist() == run.due(layer, 0, more)
    run.said[0] += more[:kept]
    run.check_state()
    return traffic.rows


@pytest.fixture
def made(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Requests]:
    operators("current")

    def make(protocol: str, drafts: int) -> Requests:
        monkeypatch.setenv("STATEHAL_ASCEND_NPU_CONV", protocol)
        return Requests(WIDTH, drafts, count=1, layers=(2,), state=None)

    return make


@pytest.mark.parametrize("drafts", [2, 4, 8])
def test_offset_moves_nothing(
    made: Callable[[str, int], Requests], monkeypatch: pytest.MonkeyPatch, drafts: int
) -> None:
    run = made("offset", drafts)
    found = [step(run, kept, monkeypatch) for kept in range(1, drafts + 1)]
    assert found == [(WIDTH - 1) + 4 * drafts + 2 * (WIDTH - 2)] * drafts


@pytest.mark.parametrize("drafts", [2, 4, 8])
def test_rollback_moves_the_live_rows_alone(
    made: Callable[[str, int], Requests], monkeypatch: pytest.MonkeyPatch, drafts: int
) -> None:
    """What is published as the minimal move: no row that will not be read again."""
    run = made("rollback", drafts)
    found = [step(run, kept, monkeypatch) for kept in range(1, drafts + 1)]
    offset = (WIDTH - 1) + 4 * drafts + 2 * (WIDTH - 2)
    assert found == [offset + 2 * (WIDTH - 1) * (kept < drafts) for kept in range(1, drafts + 1)]


def test_a_shift_of_all_rows_would_move_more(
    made: Callable[[str, int], Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What engines do under rollback, beside the plugin's own verify: every row up to the last accepted one moves."""
    drafts, found = 8, []
    for kept in range(1, drafts + 1):
        run = made("rollback", drafts)
        more = run.rows(drafts)
        x, last = run.x(more), kept - 1
        with counted(run, monkeypatch) as traffic:
            run.conv.verify(2, x, run.slots[:1])
            with _disable_current_modes():
                slot = int(run.slots.of(run.sub.layout.form("conv", "row"))[0])
                window = rows.of("window", run.sub.view("conv", 2, "row"))
                for row in range(WIDTH - 1 + last, 0, -1) if last < drafts - 1 else ():
                    window.write(window.read(slot, row - 1), slot, row - 1 + drafts - 1 - last)
        run.said[0] += more[:kept]
        run.check_state()
        found.append(traffic.rows)
    offset = (WIDTH - 1) + 4 * drafts + 2 * (WIDTH - 2)
    assert found == [offset + 2 * (WIDTH - 1 + s) * (s < drafts - 1) for s in range(drafts)]
    assert sum(found) / drafts == 49.5


def test_a_copy_of_the_window_would_be_counted(
    made: Callable[[str, int], Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counting itself: a whole-pool copy, as one engine makes for each layer, is no row access that goes unseen."""
    run = made("offset", 2)
    with counted(run, monkeypatch) as traffic:
        run.sub.view("conv", 2, "row").clone()
    assert traffic.strays == ["clone"]
