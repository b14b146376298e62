"""With checking on: a slot that a copy reads or fills is not written."""

import re
from collections.abc import Callable

import pytest
import torch

import statehal
from statehal.errors import ArgumentError


def test_no_operation_writes_a_pinned_slot_and_a_fork_of_it_is_written() -> None:
    hal = statehal.bind("cpu", "reference", check=True)
    spec = statehal.ConvRecurrent("gdn", (0,), channels=3, width=4, dtype="float32", verify_tokens=2, state=(2,))
    pool = hal.allocate(hal.plan([spec], tokens=1, requests=8))
    conv, sub = hal.conv(pool["gdn"]), pool["gdn"]
    conv.prepare(0, torch.ones(3, 4))
    handles = [pool.alloc(1) for _ in range(3)]
    pinned, other, third = (sub.kernel_ids(one.page_ids()) for one in handles)
    x, one, ends = torch.ones(1, 3), torch.tensor([1]), torch.tensor([0, 1])
    snapshots = (torch.tensor([0]), one, pinned)
    pin = pool.pin(handles[0])
    before = pool.buffer.clone()
    calls: dict[str, Callable[[], object]] = {
        "decode of layer 0 of 'gdn'": lambda: conv.decode(0, x, pinned),
        "verify of layer 0 of 'gdn'": lambda: conv.verify(0, torch.ones(2, 3), pinned),
        "prefill of layer 0 of 'gdn'": lambda: conv.prefill(0, x, ends, pinned),
        "prefill of layer 0 of 'gdn' ": lambda: conv.prefill(0, x, ends, other, snapshots=snapshots),
        "copy_slots of 'gdn'": lambda: conv.copy_slots(other, pinned),
        "zero_slots of 'gdn'": lambda: conv.zero_slots(pinned),
    }
    for where, call in calls.items():
        text = rf"^{re.escape(where.strip())}: slot \d+ is pinned, because a copy reads or fills it \(fix: pool\.fork\("
        with pytest.raises(ArgumentError, match=text):
            call()
    assert torch.equal(pool.buffer, before)
    conv.decode(0, x, third)
    with pytest.raises(ArgumentError, match=r"^commit of 'gdn': slot \d+ is pinned"):
        conv.commit(third, one, track_slots=pinned, track_accepted=one)
    conv.copy_slots(pinned, other)  # reading is not writing
    assert pool.fork(handles[0])
    own = sub.kernel_ids(handles[0].page_ids())
    conv.decode(0, x, own)
    conv.commit(own, one)
    pool.unpin(pin)
