"""Launches of a commit."""

from typing import NamedTuple

from torch import Tensor

from statehal_triton_ops.axes import power_of_two
from statehal_triton_ops.conv.tuning import ConvTuning
from statehal_triton_ops.conv.views import ConvViews, blocks
from statehal_triton_ops.kernels.conv_commit import commit_slots, follow_path
from statehal_triton_ops.kernels.conv_rows import WordRows
from statehal_triton_ops.launch import launch


class Step(NamedTuple):
    """A step that ends; all tensors are contiguous.

    Attributes:
        slots, accepted: ``[requests]``.
        path: ``[requests, D]`` of trees.
        states: ``[requests, D]``, slots with the recurrent rows after each token.
    """

    slots: Tensor
    accepted: Tensor
    path: Tensor | None
    states: Tensor | None


def commit(views: ConvViews, tuning: ConvTuning, step: Step) -> None:
    """Cursors and recurrent rows of all layers, in one launch; before it, of trees, one that moves their rows."""
    if step.path is not None:
        _follow(views, tuning, step, None, None)
    _commit(views, tuning, step, None, None)


def track(views: ConvViews, tuning: ConvTuning, step: Step, targets: Tensor, counts: Tensor) -> None:
    """Checkpoints of tracked slots, in one launch, before ``commit``; after it, of trees, one that moves their rows.

    Args:
        targets, counts: ``[requests]``, contiguous.
    """
    _commit(views, tuning, step, targets, counts)
    if step.path is not None:
        _follow(views, tuning, step, targets, counts)


def _commit(views: ConvViews, tuning: ConvTuning, step: Step, targets: Tensor | None, counts: Tensor | None) -> None:
    fields: tuple[WordRows, ...] = ()
    if step.states is not None or targets is not None:
        fields = views.recurrent
    fetched = len(fields)
    fields += views.whole if targets is not None else ()
    block = power_of_two(min(tuning.words, max((one.words for one in fields), default=1)))
    tiles = min(tuning.tiles, -(-max((one.words for one in fields), default=1) // block))
    sizes = blocks(fields, block)
    pieces = (one.layers * -(-one.words // (tiles * size)) for one, size in zip(fields, sizes, strict=True))
    parts = max(1, sum(pieces))
    launch(
        commit_slots,
        (step.slots.shape[0] * parts,),
        views.words,
        fields,
        *_arguments(views, step, targets, counts),
        step.slots if step.states is None else step.states,
        parts,
        views.spec.verify_tokens,
        RING=views.ring,
        TRACK=targets is not None,
        TREE=step.path is not None,
        STATES=step.states is not None,
        FETCHED=fetched,
        TILES=tiles,
        BLOCKS=sizes,
        VECTORS=views.vectors(fields),
        num_warps=4 if fields else 1,
    )


def _follow(views: ConvViews, tuning: ConvTuning, step: Step, targets: Tensor | None, counts: Tensor | None) -> None:
    longest = max(one.words for one in views.moved)
    block = power_of_two(min(tuning.words, longest))
    sizes = blocks(views.moved, block)
    parts = sum(one.layers * -(-one.words // size) for one, size in zip(views.moved, sizes, strict=True))
    launch(
        follow_path,
        (step.slots.shape[0] * parts,),
        views.words,
        views.moved,
        *_arguments(views, step, targets, counts),
        parts,
        views.spec.verify_tokens,
        WIDTH=views.spec.width,
        RING=views.ring,
        TRACK=targets is not None,
        BLOCKS=sizes,
        VECTORS=views.vectors(views.moved),
    )


def _arguments(views: ConvViews, step: Step, targets: Tensor | None, counts: Tensor | None) -> tuple[object, ...]:
    """Windows, slots, owners, accepted, most and path."""
    windows = views.windows[views.spec.layers[0]]
    path = step.slots if step.path is None else step.path
    if targets is None or counts is None:
        return windows, step.slots, step.slots, step.accepted, step.accepted, path
    return windows, targets, step.slots, counts, step.accepted, path
