"""Slots: the cursor belongs to the slot and moves in commit alone; copying, zeroing and reading whole checkpoints."""

import pytest
import torch

from reference.conv_oracle import lists, rig, whole
from statehal.layout import ConvStateLayout


def test_commit_moves_the_cursor_of_its_slots_and_no_operation_else() -> None:
    made = rig(3, 2, layers=(0, 5), verify_tokens=3)
    cursors = made.sub.view("cursor", 5, "page")[:, 0, 0]
    where = [made.physical(slot) for slot in range(1, 7)]
    seen = [0] * 6
    x = whole(1, 6, 2)
    for accepted in ([1, 3, 2], [2, 2, 1], [3, 1, 1], [1, 1, 1]):
        for layer in (0, 5):
            made.conv.prefill(layer, x, torch.tensor([0, 2, 4, 6]), made.pick(1, 3, 4))
            made.conv.decode(layer, x[:2], made.pick(1, 3))
            made.conv.read_state(made.slots)
        assert cursors[where].tolist() == seen
        made.conv.commit(made.pick(1, 3, -1, 4), torch.tensor([accepted[0], accepted[1], 9, accepted[2]]))
        for slot, count in zip((0, 2, 3), accepted, strict=True):
            seen[slot] = (seen[slot] + count) % 4
        assert cursors[where].tolist() == seen
        assert cursors[0] == 0


def test_the_offset_cursor_says_where_the_live_rows_start() -> None:
    made = rig(3, 2, window=ConvStateLayout(protocol="offset"), verify_tokens=3)
    cursor = made.sub.view("cursor", 0, "page")[made.physical(2), 0, 0]
    for count in (1, 3, 2, 1):
        made.commit(2, accepted=[count])
        assert cursor == count - 1


@pytest.mark.parametrize("window", [ConvStateLayout(), ConvStateLayout(protocol="offset")])
@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_commit_of_several_makes_later_rows_live(window: ConvStateLayout, accepted: int) -> None:
    """Rows put into the window as a verify would: the tokens after the live ones, in order."""
    made = rig(4, 1, window=window, verify_tokens=3)
    view = made.sub.view("conv", 0, "page")[made.physical(1), 0]
    view[:, 0] = torch.arange(5.0) + 10
    live = [10.0, 11.0, 12.0, 13.0, 14.0]
    made.commit(1, accepted=[accepted])
    start = accepted if window.protocol == "ring" else accepted - 1
    wanted = [live[(start + n) % 5] for n in range(3)]
    assert made.conv.read_state(made.pick(1)).flatten().tolist() == wanted


def test_a_slot_of_zero_bytes_is_a_valid_empty_slot() -> None:
    for window in (ConvStateLayout(), ConvStateLayout("channels_first", 4, "offset")):
        made = rig(4, 3, window=window, verify_tokens=2)
        x = whole(1, 3, 3)
        wanted = made.conv.prefill(0, x[:1], torch.tensor([0, 1]), made.pick(1))
        made.conv.prefill(0, x, torch.tensor([0, 3]), made.pick(2))
        made.commit(2, accepted=[2])
        made.conv.zero_slots(made.pick(2))
        assert made.conv.read_state(made.pick(2)).eq(0).all()
        assert torch.equal(made.conv.decode(0, x[:1], made.pick(2)), wanted)
        made.commit(2)
        assert lists(made.conv.read_state(made.pick(2))[0, 0]) == [[0.0] * 3, [0.0] * 3, lists(x[0])]


def test_a_copied_slot_goes_on_as_its_source_would() -> None:
    made = rig(4, 3, layers=(2, 0), verify_tokens=3, shared=True)
    x = whole(2, 8, 3)
    for layer in (2, 0):
        made.conv.prefill(layer, x[:6], torch.tensor([0, 6]), made.pick(1))
    made.commit(1, accepted=[2])
    made.conv.copy_slots(made.pick(1), made.pick(4))
    for layer in (2, 0):
        both = made.conv.decode(layer, x[6:7].expand(2, -1), made.pick(1, 4))
        assert torch.equal(both[0], both[1])
        assert both.any()
    made.commit(1, 4)
    state = made.conv.read_state(made.pick(1, 4))
    assert torch.equal(state[:, 0], state[:, 1])
    assert state.any()


def test_read_state_is_a_new_tensor_in_the_specs_order_of_layers() -> None:
    made = rig(3, 2, "bfloat16", layers=(7, 2), shared=True)
    for value, layer in ((7, 7), (2, 2)):
        made.conv.prefill(layer, torch.full((4, 2), value).bfloat16(), torch.tensor([0, 4]), made.pick(3))
    made.commit(3)
    state = made.conv.read_state(made.pick(3, -1, 0, 5))
    assert (state.shape, state.dtype) == ((2, 4, 2, 2), torch.bfloat16)
    assert lists(state[:, 0]) == [[[7.0] * 2] * 2, [[2.0] * 2] * 2]
    assert state[:, 1:].eq(0).all()
    state.fill_(9)
    assert made.conv.read_state(made.pick(3))[0, 0, 0, 0] == 7
    assert made.conv.read_state(made.pick()).shape == (2, 0, 2, 2)


def test_layers_that_share_a_window() -> None:
    made = rig(3, 2, layers=(0, 4), shared=True)
    other = rig(3, 2, layers=(0, 4), slots=2)
    assert made.conv.read_state(made.pick(1)).shape[0] == other.conv.read_state(other.pick(1)).shape[0] == 2


def test_slots_of_the_pool_are_in_no_way_those_of_the_conv_alone() -> None:
    """A full pool: attention pages and slots lie side by side and neither changes the other."""
    made = rig(4, 3, shared=True, state=(2, 2))
    made.pool.flush()
    keys = made.sub.pool["kv"]
    before = bytes(keys.view("k", 90).flatten().view(torch.uint8).tolist())
    made.conv.prefill(0, torch.ones(12, 3), torch.arange(7) * 2, made.slots)
    made.conv.commit(made.slots, torch.ones(6, dtype=torch.int32))
    live = keys.kernel_ids(made.pool.alloc(4, "kv").token_ids())
    assert keys.view("k", 90)[live.tensor].eq(0).all()
    made.pool.check()
    assert len(before) > 0
