"""With checking on: a step without its commit, with two, or not of all layers; through reuse, copies and compaction."""

from functools import partial
from typing import Any

import pytest
import torch

import statehal
from reference.conv_oracle import Rig, refused, rig
from statehal.binding.checks import CheckedCausalConv1d
from statehal.errors import ArgumentError, StepError, WrongIdSpace

ONES = torch.ones(2, dtype=torch.int64)


def x(tokens: int) -> torch.Tensor:
    return torch.ones(tokens, 3)


@pytest.fixture
def made() -> Rig:
    return rig(4, 3, layers=(0, 2), verify_tokens=3, check=True)


def step(made: Rig, *slots: int) -> None:
    for layer in (0, 2):
        made.conv.decode(layer, x(len(slots)), made.pick(*slots))


def test_a_commit_without_a_step(made: Rig) -> None:
    text = (
        r"commit of 'conv': slot \d+ has no step to commit: it was committed already, or never ran \(fix: commit once"
    )
    refused(made, StepError, text, lambda: made.commit(1))
    step(made, 1, 2)
    refused(made, StepError, text, lambda: made.commit(1, 3))
    made.commit(1, 2)
    refused(made, StepError, text, lambda: made.commit(2))


@pytest.mark.parametrize("method", ["decode", "prefill", "verify"])
def test_a_step_without_its_commit(made: Rig, method: str) -> None:
    step(made, 1, 2)
    calls: dict[str, Any] = {
        "decode": lambda: made.conv.decode(2, x(2), made.pick(3, 2)),
        "prefill": lambda: made.conv.prefill(2, x(2), torch.tensor([0, 1, 2]), made.pick(3, 2)),
        "verify": lambda: made.conv.verify(2, x(6), made.pick(3, 2)),
    }
    text = rf"{method} of layer 2 of 'conv': layer 2 has run for slot \d+ in this step already \(fix: end every step"
    refused(made, StepError, text, calls[method])
    made.commit(1, 2)
    calls[method]()


def test_a_commit_before_all_layers_ran(made: Rig) -> None:
    made.conv.decode(2, x(1), made.pick(1))
    text = r"commit of 'conv': layers \[0\] have not run for slot \d+ in this step"
    refused(made, StepError, text, lambda: made.commit(1))
    made.conv.decode(0, x(1), made.pick(1))
    made.commit(1)


def test_layers_of_one_step_have_one_count(made: Rig) -> None:
    made.conv.verify(0, x(2), made.pick(1), query_start_loc=torch.tensor([0, 2]))
    text = r"slot \d+ does something else in another layer of this step: expected as many tokens in all layers"
    refused(made, StepError, text, lambda: made.conv.verify(2, x(3), made.pick(1)))
    refused(made, StepError, text, lambda: made.conv.decode(2, x(1), made.pick(1)))


def test_reading_in_the_middle_of_a_step(made: Rig) -> None:
    step(made, 1)
    where = r"slot \d+, whose step is not committed \(fix: commit it first\)"
    refused(made, StepError, "read_state of 'conv': slots name " + where, lambda: made.conv.read_state(made.pick(2, 1)))
    text = "copy_slots of 'conv': src name " + where
    refused(made, StepError, text, lambda: made.conv.copy_slots(made.pick(1), made.pick(2)))
    loc, yes = torch.tensor([0, 1]), torch.tensor([True])

    def prefill(**options: Any) -> torch.Tensor:
        return made.conv.prefill(0, x(1), loc, made.pick(3), yes, **options)

    refused(made, StepError, "initial_slots read " + where, lambda: prefill(initial_slots=made.pick(1)))
    points = torch.tensor([0]), torch.tensor([1]), made.pick(1)
    refused(made, StepError, "snapshots name " + where, lambda: prefill(snapshots=points))
    step(made, 4)
    one = torch.tensor([1])
    text = "track_slots name " + where
    refused(
        made,
        StepError,
        text,
        lambda: made.conv.commit(made.pick(4), one, track_slots=made.pick(1), track_accepted=one),
    )


def test_padding_and_empty_batches_have_no_step(made: Rig) -> None:
    step(made, 1, -1, 0)
    made.commit(1, -1, 0)
    made.commit(-1, 0)
    step(made)
    made.commit()
    made.conv.read_state(made.pick(-1))


def test_a_slot_that_is_emptied_or_overwritten_has_no_step(made: Rig) -> None:
    step(made, 1, 2)
    made.conv.zero_slots(made.pick(1))
    made.conv.copy_slots(made.pick(3), made.pick(2))
    made.conv.read_state(made.pick(1, 2))
    step(made, 1, 2)
    made.commit(1, 2)


def test_a_slot_that_is_freed_in_a_step_begins_anew() -> None:
    made = rig(4, 3, check=True, slots=3)
    pages = made.pool.alloc(0, "conv")
    made.pool.free(list(range(1, 4)), family=made.sub.family)
    for _ in range(2):
        pages = made.pool.alloc(3, "conv")
        ids = made.sub.kernel_ids(pages.page_ids())
        made.conv.decode(0, x(3), ids)
        made.pool.free(pages)
        with pytest.raises(WrongIdSpace, match="no page in use"):
            made.conv.commit(ids, torch.ones(3, dtype=torch.int64))


def test_a_compaction_in_a_step_carries_the_books_along() -> None:
    made = rig(4, 3, check=True, shared=True, slots=40)
    for ids in (range(2, 20), range(22, 41)):
        made.pool.free(list(ids), family=made.sub.family)
    kept = torch.tensor([1, 20, 21])
    virtual = made.sub.space("virtual", "pages").assume(kept)
    before = made.sub.kernel_ids(virtual)
    made.conv.decode(0, x(3), before)
    assert made.pool.compact(max_moves=40).moves
    after = made.sub.kernel_ids(virtual)
    assert not torch.equal(before.tensors[0], after.tensors[0])
    with pytest.raises(StepError, match="has run for slot"):
        made.conv.decode(0, x(3), after)
    made.conv.commit(after, torch.ones(3, dtype=torch.int64))
    with pytest.raises(StepError, match="no step"):
        made.conv.commit(after, torch.ones(3, dtype=torch.int64))


def test_two_bindings_of_one_sub_pool_share_the_books(made: Rig) -> None:
    other = statehal.bind("cpu", "reference", check=True).conv(made.sub)
    for layer in (0, 2):
        other.prepare(layer, torch.ones(3, 4))
    step(made, 1)
    with pytest.raises(StepError, match="has run for slot"):
        other.decode(0, x(1), made.pick(1))
    other.commit(made.pick(1), ONES[:1])
    with pytest.raises(StepError, match="no step to commit"):
        made.commit(1)


def test_layers_that_read_from_different_slots(made: Rig) -> None:
    """``initial_slots``, or a flag, passed to one layer and forgotten in the next."""
    loc, yes = torch.tensor([0, 1]), torch.tensor([True])
    made.conv.prefill(0, x(1), loc, made.pick(1), yes, initial_slots=made.pick(2))
    text = "does something else in another layer of this step: expected one slot to read from in all layers"
    for arguments in ((yes,), (), (~yes,)):
        call = partial(made.conv.prefill, 2, x(1), loc, made.pick(1), *arguments)
        refused(made, StepError, text, call)
    made.conv.prefill(2, x(1), loc, made.pick(1), yes, initial_slots=made.pick(2))
    made.commit(1)


@pytest.mark.parametrize("other", [None, [-1, 0, 0]])
def test_layers_that_verify_different_trees(made: Rig, other: list[int] | None) -> None:
    made.conv.verify(0, x(3), made.pick(1), parents=torch.tensor([-1, 0, 1] if other else [-1, 0, 0]))
    parents = None if other is None else torch.tensor(other)
    call = partial(made.conv.verify, 2, x(3), made.pick(1), parents=parents)
    refused(made, StepError, "expected one tree in all layers", call)
    chain = torch.tensor([-1, 0, 1])
    made.conv.verify(2, x(3), made.pick(1), parents=torch.tensor([-1, 0, 0]) if other is None else chain)


def test_a_tree_that_is_committed_without_its_path(made: Rig) -> None:
    for layer in (0, 2):
        made.conv.verify(layer, x(3), made.pick(1), parents=torch.tensor([-1, 0, 0]))
    text = r"request 0 verified a tree without a path: row 2 does not follow row 1 in its tree \(fix: pass path\)"
    refused(made, ArgumentError, text, lambda: made.commit(1, accepted=[3]))
    text = r"path\[0, 2\] is 2: row 2 does not follow row 1 in its tree"
    path = torch.tensor([[0, 1, 2]])
    refused(made, ArgumentError, text, lambda: made.conv.commit(made.pick(1), torch.tensor([3]), path=path))
    made.commit(1, accepted=[2])


def test_a_snapshot_of_some_layers_alone(made: Rig) -> None:
    loc, points = torch.tensor([0, 2]), (torch.tensor([0]), torch.tensor([1]), made.pick(4))
    made.conv.prefill(0, x(2), loc, made.pick(1), snapshots=points)
    lacks = r"the snapshot in slot \d+ lacks layers \[2\] \(fix: pass the same snapshots to every layer\)"
    refused(made, StepError, "read_state of 'conv': " + lacks, lambda: made.conv.read_state(made.pick(4)))
    made.conv.prefill(2, x(2), loc, made.pick(1))
    refused(made, StepError, "commit of 'conv': " + lacks, lambda: made.commit(1))
    made.conv.zero_slots(made.pick(4))
    made.commit(1)


def test_a_snapshot_can_be_read_before_the_commit_and_taken_again(made: Rig) -> None:
    loc, points = torch.tensor([0, 2]), (torch.tensor([0]), torch.tensor([1]), made.pick(4))
    for _ in range(2):
        for layer in (0, 2):
            made.conv.prefill(layer, x(2), loc, made.pick(1), snapshots=points)
        made.conv.read_state(made.pick(4))
        made.commit(1)


def test_an_operation_that_fails_half_way() -> None:
    """What a provider raises that is no refusal may have come after a part was written: a retry is no way out."""

    class Failing:
        def __init__(self, methods: Any) -> None:
            self.methods, self.broken = methods, False

        def decode(self, *args: Any, **options: Any) -> torch.Tensor:
            if self.broken:
                raise RuntimeError("a kernel failed")
            return self.methods.decode(*args, **options)  # type: ignore[no-any-return]

        def __getattr__(self, name: str) -> Any:
            return getattr(self.methods, name)

    made = rig(4, 3)
    failing = Failing(made.conv)
    conv: Any = CheckedCausalConv1d(failing, made.sub)
    failing.broken = True
    with pytest.raises(RuntimeError, match="a kernel failed"):
        conv.decode(0, x(2), made.pick(1, 2))
    failing.broken = False
    text = r"an operation failed half-way for slot \d+ \(fix: empty it with zero_slots, or copy a checkpoint over it\)"
    for call in (
        partial(conv.decode, 0, x(2), made.pick(3, 2)),
        partial(conv.commit, made.pick(1), ONES[:1]),
        partial(conv.read_state, made.pick(2)),
        partial(conv.copy_slots, made.pick(1), made.pick(4)),
    ):
        with pytest.raises(StepError, match=text):
            call()
    conv.zero_slots(made.pick(1))
    conv.copy_slots(made.pick(3), made.pick(2))
    conv.decode(0, x(2), made.pick(1, 2))
    conv.commit(made.pick(1, 2), ONES)
    with pytest.raises(ArgumentError):
        conv.decode(0, x(3), made.pick(1, 2))
    conv.decode(0, x(2), made.pick(1, 2))


class Failing:
    """Methods of which one raises after a part is done."""

    def __init__(self, methods: Any, method: str) -> None:
        self.methods, self.method = methods, method

    def __getattr__(self, name: str) -> Any:
        if name != self.method:
            return getattr(self.methods, name)

        def run(*args: Any, **options: Any) -> None:
            getattr(self.methods, name)(*args, **options)
            raise KeyboardInterrupt

        return run


def test_a_commit_that_fails_half_way_closes_its_tracked_slots() -> None:
    made = rig(4, 3, verify_tokens=2)
    conv: Any = CheckedCausalConv1d(Failing(made.conv, "commit"), made.sub)
    conv.verify(0, x(4), made.pick(1, 2))
    with pytest.raises(KeyboardInterrupt):
        conv.commit(made.pick(1, 2), ONES, track_slots=made.pick(3, 4), track_accepted=torch.tensor([1, 0]))
    for slot in (1, 2, 3):
        with pytest.raises(StepError, match="an operation failed half-way"):
            conv.read_state(made.pick(slot))
    conv.read_state(made.pick(4))


def test_a_prefill_that_fails_half_way_closes_its_snapshots() -> None:
    made = rig(4, 3)
    conv: Any = CheckedCausalConv1d(Failing(made.conv, "prefill"), made.sub)
    points = torch.tensor([0]), torch.tensor([1]), made.pick(4)
    with pytest.raises(KeyboardInterrupt):
        conv.prefill(0, x(2), torch.tensor([0, 2]), made.pick(1), snapshots=points)
    for slot in (1, 4):
        with pytest.raises(StepError, match="an operation failed half-way"):
            conv.read_state(made.pick(slot))


def test_a_slot_that_is_tracked_whole_is_fit_again() -> None:
    made = rig(4, 3, check=True)
    made.sub.step_books.fail(torch.tensor([made.physical(3)]))
    step_of = torch.tensor([1])
    made.conv.decode(0, x(1), made.pick(1))
    made.conv.commit(made.pick(1), step_of, track_slots=made.pick(3), track_accepted=step_of)
    made.conv.decode(0, x(1), made.pick(3))


@pytest.mark.parametrize(("sequence", "end"), [(1, 1), (0, 2)])
def test_layers_that_save_different_snapshots(made: Rig, sequence: int, end: int) -> None:
    loc, slots = torch.tensor([0, 2, 4]), made.pick(1, 2)

    def prefill(layer: int, sequence: int, end: int) -> None:
        points = torch.tensor([sequence]), torch.tensor([end]), made.pick(4)
        made.conv.prefill(layer, x(4), loc, slots, snapshots=points)

    prefill(0, 0, 1)
    text = r"slot \d+ has the snapshot of another sequence or token from another layer of this step"
    refused(made, StepError, text, lambda: prefill(2, sequence, end))
    prefill(2, 0, 1)


@pytest.mark.parametrize("way", ["zeroed", "overwritten"])
def test_half_a_snapshot_is_unfit_when_its_sequence_is_given_up(made: Rig, way: str) -> None:
    points = torch.tensor([0]), torch.tensor([1]), made.pick(4)
    made.conv.prefill(0, x(2), torch.tensor([0, 2]), made.pick(1), snapshots=points)
    if way == "zeroed":
        made.conv.zero_slots(made.pick(1))
    else:
        made.conv.copy_slots(made.pick(5), made.pick(1))
    text = "an operation failed half-way"
    refused(made, StepError, text, lambda: made.conv.read_state(made.pick(4)))
    refused(made, StepError, text, lambda: made.conv.decode(0, x(1), made.pick(4)))
    made.conv.zero_slots(made.pick(4))
    made.conv.read_state(made.pick(4))


def test_half_a_snapshot_is_no_state_to_go_on_from(made: Rig) -> None:
    points = torch.tensor([0]), torch.tensor([1]), made.pick(4)
    made.conv.prefill(0, x(2), torch.tensor([0, 2]), made.pick(1), snapshots=points)
    text = r"the snapshot in slot \d+ lacks layers \[2\]"
    refused(made, StepError, text, lambda: made.conv.decode(0, x(1), made.pick(4)))


def test_a_decode_beside_a_tree_has_the_path_of_its_one_row(made: Rig) -> None:
    loc, tree = torch.tensor([0, 3]), torch.tensor([-1, 0, 0])
    for layer in (0, 2):
        made.conv.verify(layer, x(3), made.pick(1), query_start_loc=loc, parents=tree)
        made.conv.decode(layer, x(1), made.pick(2))
    counts = torch.tensor([2, 1])
    text = r"path\[1, 0\] is 2: expected 0 to 0"
    wrong, right = torch.tensor([[0, 2, 0], [2, 0, 0]]), torch.tensor([[0, 2, 0], [0, 7, 7]])
    refused(made, ArgumentError, text, lambda: made.conv.commit(made.pick(1, 2), counts, path=wrong))
    made.conv.commit(made.pick(1, 2), counts, path=right)


def test_a_fork_in_a_step_carries_the_books_along() -> None:
    made = rig(4, 3, layers=(0, 2), check=True, slots=3)
    made.pool.free([1, 2, 3], family=made.sub.family)
    pages = made.pool.alloc(1, "conv")
    other = made.pool.retain(pages)

    def ids(of: Any) -> Any:
        return made.sub.kernel_ids(of.page_ids())

    made.conv.decode(0, x(1), ids(pages))
    assert made.pool.fork(other, 0)
    for of in (pages, other):
        with pytest.raises(StepError, match="whose step is not committed"):
            made.conv.read_state(ids(of))
        made.conv.decode(2, x(1), ids(of))
        made.conv.commit(ids(of), ONES[:1])
    assert torch.equal(made.conv.read_state(ids(pages)), made.conv.read_state(ids(other)))


def test_a_first_binding_under_inference_mode() -> None:
    made = rig(4, 3, weights=False)
    hal = statehal.bind("cpu", "reference", check=True)
    with torch.inference_mode():
        conv = hal.conv(made.sub)
        conv.prepare(0, torch.ones(3, 4))
        conv.decode(0, x(1), made.pick(1))
        conv.commit(made.pick(1), ONES[:1])
    conv.decode(0, x(1), made.pick(1))
    conv.commit(made.pick(1), ONES[:1])


def test_an_empty_prompt_is_a_step(made: Rig) -> None:
    for layer in (0, 2):
        made.conv.prefill(layer, x(0), torch.tensor([0, 0]), made.pick(1))
    made.commit(1)
    for layer in (0, 2):
        made.conv.prefill(layer, x(0), torch.tensor([0, 0]), made.pick(1))
    made.conv.commit(made.pick(1), ONES[:1], path=torch.tensor([[0, 9, 9]]))


def test_slots_are_given_up_with_zero_slots(made: Rig) -> None:
    """A host that keeps its own free slots aborts a request in the middle of a step, and uses the slot again."""
    made.conv.decode(0, x(1), made.pick(1))
    with pytest.raises(StepError, match="empty a slot that is given up with zero_slots"):
        made.conv.decode(0, x(1), made.pick(1))
    made.conv.zero_slots(made.pick(1))
    step(made, 1)
    made.commit(1)


def test_without_checking_nothing_is_asked() -> None:
    made = rig(4, 3, layers=(0, 2), verify_tokens=3)
    made.commit(1)
    step(made, 1)
    step(made, 1)
