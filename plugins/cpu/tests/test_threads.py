"""Several threads: the same bits, also in a process that was forked while they slept."""

import os
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
    rig = ConvRig(1100, drafts=8, requests=65)
    rig.conv.prepare(0, torch.randn(1100, 4, generator=generator), activation="silu")
    x = torch.randn(800, 1100, generator=generator).bfloat16()
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
    alone = run(3, forked=False)
    child = os.fork()
    if child == 0:
        same = all(torch.equal(a, b) for a, b in zip(alone, run(3, forked=False), strict=True))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
