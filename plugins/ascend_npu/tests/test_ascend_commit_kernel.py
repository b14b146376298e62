"""The Triton kernels, interpreted: by addresses of the layout's integers, and against the same steps without them."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ascend_rig import Requests, joined
from torch import Tensor

from statehal_ascend_npu.conv import launches

pytestmark = pytest.mark.interpreted

PROTOCOLS = ("offset", "rollback")


def bytes_of(run: Requests) -> bytearray:
    return bytearray(run.pool.buffer.numpy().tobytes())


def slot_numbers(run: Requests, ids: Any) -> list[int]:
    """Physical slots of kernel ids."""
    found: list[int] = ids.of(run.sub.layout.form("cursor", "page")).flatten().tolist()
    return found


@pytest.fixture
def kernels(operators: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register operators and choose a protocol."""

    def choose(protocol: str = "offset") -> None:
        operators("current")
        monkeypatch.setenv("STATEHAL_ASCEND_NPU_CONV", protocol)

    return choose


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("width", "drafts"), [(4, 4), (2, 3), (3, 1), (7, 3)])
def test_a_commit_moves_live_rows_cursors_and_states(
    kernels: Callable[..., None], protocol: str, width: int, drafts: int
) -> None:
    """Every byte of the pool, by its address: what a commit has to move is moved, and nothing else changes."""
    kernels(protocol)
    run = Requests(width, drafts, seed=width)
    generator = torch.Generator().manual_seed(drafts)
    run.pool.buffer.copy_(torch.randint(0, 256, run.pool.buffer.shape, generator=generator).to(torch.uint8))
    accepted = [run.chance.randint(1, drafts) for _ in range(4)]
    slots, scratch = slot_numbers(run, run.slots), slot_numbers(run, run.scratch)
    assert slots[3] == 0, "the last is padding"
    before, fields = bytes_of(run), {field.name: field for field in run.sub.layout.fields}
    wanted = bytearray(before)
    for request in range(3):
        kept, slot = accepted[request], slots[request]
        for layer in run.spec.layers:
            row = fields["conv"].row_bytes // run.spec.window_rows
            at = fields["conv"].address(layer, slot)
            live = before[at + (kept - 1) * row : at + (kept + width - 2) * row]
            if protocol == "rollback":
                wanted[at + (drafts - 1) * row : at + run.spec.window_rows * row] = live
            source = fields["state"].address(layer, scratch[request * drafts + kept - 1])
            target, size = fields["state"].address(layer, slot), fields["state"].row_bytes
            wanted[target : target + size] = before[source : source + size]
        cursor = fields["cursor"].address(run.spec.layers[0], slot)
        wanted[cursor : cursor + 4] = (kept - 1 if protocol == "offset" else 0).to_bytes(4, "little")
    pads = joined(run.scratch, run.slots[3:].reshape(1, 1)[[0] * drafts].reshape(1, drafts))
    run.conv.commit(run.slots, torch.tensor(accepted, dtype=torch.int32), state_slots=pads)
    assert bytes_of(run) == wanted


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_everything_equals_what_torch_leaves(
    kernels: Callable[..., None], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Rounds of every kind, trees, tracked slots and empty sequences among them, with and without kernels."""
    kernels(protocol)
    images = []
    for with_kernels in (True, False):
        if not with_kernels:
            monkeypatch.setattr("statehal_ascend_npu.causal_conv1d.has_kernels", lambda device: False)
        images.append(some_rounds(Requests(4, 3, seed=5, channels=20)))
    assert images[0] == images[1]


def some_rounds(run: Requests) -> tuple[bytearray, list[list[float]]]:
    chance, outputs = random.Random(3), []
    slots, three = run.slots, torch.tensor([3, 1, 2])
    generator = torch.Generator().manual_seed(1)

    def x(tokens: int) -> Tensor:
        return torch.randn(tokens, run.spec.channels, generator=generator).to(torch.bfloat16)

    for step in range(4):
        loc = torch.tensor([0, 3, 3, 5, 5])  # the second is empty, and so is the padding
        has = torch.tensor([False, step % 2 == 1, True, True])
        for layer in run.spec.layers:
            source = run.slots[[0, 2, 2, 3]] if step == 3 else None
            outputs += run.conv.prefill(layer, x(6), loc, slots, has, initial_slots=source).tolist()
        run.conv.commit(slots, torch.ones(4, dtype=torch.int64))
        parents = torch.tensor([-1, 0, 0] * 3) if step % 2 else None
        for layer in run.spec.layers:
            outputs += run.conv.verify(layer, x(9), slots[:3], parents=parents).tolist()
        path = torch.tensor([[0, 2, 1]] * 3) if step % 2 else None
        count = torch.tensor([chance.randint(1, 2 if step % 2 else 3) for _ in range(3)])
        tracked = run.scratch[:, 0] if step == 2 else None
        run.conv.commit(
            slots[:3], count, path=path, state_slots=run.scratch, track_slots=tracked,
            track_accepted=None if tracked is None else count.minimum(three),
        )  # fmt: skip
    return bytes_of(run), outputs


def test_rows_are_zeroed_and_no_other_is_touched() -> None:
    rows = torch.arange(60.0).view(6, 10).to(torch.bfloat16)
    dead = torch.tensor([True, False, False, True, False, True])
    wanted = rows.clone()
    wanted[dead] = 0
    launches.zero_rows(rows, dead)
    assert torch.equal(rows, wanted)
    rows = torch.full((3, 12), float("nan")).half()
    launches.zero_rows(rows[:, 2:9], torch.tensor([True, False, True]))
    assert rows.isnan().sum(1).tolist() == [5, 12, 5]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_launch_ends_a_step_of_all_layers_and_requests(
    kernels: Callable[..., None], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    kernels(protocol)
    run = Requests(4, 4)
    seen: list[str] = []
    original = launches._launch

    def spy(kernel: Any, *rest: Any, **more: Any) -> None:
        seen.append(kernel.__name__)
        original(kernel, *rest, **more)

    monkeypatch.setattr(launches, "_launch", spy)
    states = run.scratch
    run.conv.commit(run.slots[:3], torch.tensor([1, 2, 4]), state_slots=states)
    assert seen == ["commit_slots"]


def test_addresses_are_64_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots so far apart that no memory holds them; what would be read and written is noted instead."""
    from triton.runtime.interpreter import InterpreterBuilder

    from statehal_ascend_npu.kernels.commit import commit_slots

    words, cursors = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    seen: dict[str, set[int]] = {"load": set(), "store": set()}
    far = 1 << 32  # bytes
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def note(what: str, pointers: Any, mask: Any) -> bool:
        used = [int(one) for one in pointers.data[mask.data.astype(bool)].flatten()]
        beyond = [one for one in used if one - words.data_ptr() > far or one - cursors.data_ptr() > far]
        seen[what] |= set(beyond)
        return bool(beyond)

    def masked_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        return other if note("load", pointers, mask) else load(self, pointers, mask, other, *rest)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return None if note("store", pointers, mask) else store(self, pointers, value, mask, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", masked_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", masked_store)
    step = 1 << 30  # words, and a number of 32 bits
    table = torch.tensor([[0, 0, launches.CURSOR], [7, 1, launches.WINDOW], [9, 1, launches.RECURRENT]])
    slot, kept, states = torch.tensor([5]), torch.tensor([2]), torch.tensor([[6, 7, 6, 6]])
    commit_slots[(1,)](
        words, cursors, slot, kept, states, table, 3, 3, 9, 4, step, step,
        LIVE=3, TILE=4, ROLLBACK=True, MOVES=True, STATES=True, BLOCK=4, COLUMNS=2,
    )  # fmt: skip
    base = words.data_ptr()
    assert {base + 4 * (7 * step + 9), *(base + 4 * (5 * step + 7 + row) for row in (1, 2, 3))} == seen["load"]
    moved = {base + 4 * (5 * step + 7 + row) for row in (3, 4, 5)}
    assert moved | {base + 4 * (5 * step + 9), cursors.data_ptr() + 4 * 5 * step} == seen["store"]
