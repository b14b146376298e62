"""Several threads: the same bits, also in a process that was forked while they slept."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
import torch
from conv_rig import ConvRig
from torch import Tensor


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run(count: int, *, forked: bool) -> list[Tensor]:
    """Outputs and states of a prefill, a verify and a decode that are worth several threads."""
    torch.set_num_threads(count)
    generator = torch.Generator().manual_seed(1)
    rig = ConvRig(8300, drafts=8, requests=65)
    rig.conv.prepare(0, torch.randn(8300, 4, generator=generator), activation="silu")
    x = torch.randn(800, 8300, generator=generator).bfloat16()
    slots, loc = rig.slots[:64], torch.arange(65) * 12
    states, others = torch.arange(64) % 2 == 0, slots.reshape(2, 32)[[1, 0]].reshape(64)
    if forked:
        y = [rig.conv.prefill(0, x, loc, slots, states, initial_slots=others)]
    else:
        y = [rig.conv.prefill(0, x, loc, slots)]
    one = torch.ones(64, dtype=torch.int32)
    rig.conv.commit(slots, one)
    y.append(rig.conv.verify(0, x[:512], slots))
    rig.conv.commit(slots, one * 3)
    y.append(rig.conv.decode(0, x[:64], slots))
    rig.conv.commit(slots, one)
    rig.conv.copy_slots(slots, rig.slots[1:])
    return [*y, rig.conv.read_state(rig.slots)]


@pytest.mark.parametrize("forked", [False, True])
def test_the_number_of_threads_changes_no_bit(forked: bool) -> None:
    alone = run(1, forked=forked)
    for count in (2, 5):
        assert all(torch.equal(a, b) for a, b in zip(alone, run(count, forked=forked), strict=True))


def test_a_forked_process_makes_threads_of_its_own() -> None:
    # torch's own threads do not survive a fork, so the child calls nothing but the kernels
    torch.set_num_threads(3)
    rig = ConvRig(1100, drafts=2, requests=601)
    rig.conv.prepare(0, torch.randn(1100, 4), activation="silu")
    slots, x = rig.slots[:600], torch.randn(600, 1100).bfloat16()
    alone, forked = torch.empty_like(x), torch.zeros_like(x).share_memory_()
    rig.conv.decode(0, x, slots, out=alone)
    child = os.fork()
    if child == 0:
        rig.conv.decode(0, x, slots, out=forked)  # the same step again: its token has a row of its own
        os._exit(0)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the forked process waits for threads that it does not have")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert torch.equal(forked, alone)
