"""What a forward pass is given: its tokens, and whether they are all that its state depends on."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from statehal.errors import ArgumentError, Unsupported

ROPES_THAT_MOVE = ("dynamic", "longrope")
"""Rotations by which the key of a token depends on how long its pass was, or passes before it, of other requests."""

WITHOUT_EFFECT = ("input_ids", "attention_mask", "position_ids", "logits_to_keep", "labels")
"""Tensors that a pass may be given: what they do to the state is checked, or nothing."""


def rope_of(model: Any) -> Mapping[str, Any] | None:
    """How a model rotates its keys.

    Raises:
        Unsupported: tokens do not name the state: the same ones are rotated in more than one way, or a rank has a part.
    """
    config = model.config
    rope: Mapping[str, Any] | None = getattr(config.get_text_config(decoder=True), "rope_parameters", None)
    given = rope or {}
    kinds = {one.get("rope_type") for one in (given, *given.values()) if isinstance(one, Mapping)}
    for kind in ROPES_THAT_MOVE:
        if kind in kinds:
            raise Unsupported(
                f"{config.model_type!r} rotates keys by {kind!r}, so that they depend on lengths of passes, and tokens "
                f"alone do not name them (fix: use caches of host.new_cache(), whose state is not stored)"
            )
    ranks = getattr(model, "tp_size", None) or 1
    if ranks > 1:
        raise Unsupported(
            f"the model is divided among {ranks} ranks, and each would store its part by the name of the whole (fix: "
            f"an Offloader on a RankPool with topology and rank)"
        )
    return rope


def by_name(module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call of ``module.forward``, by name."""
    return dict(zip(inspect.signature(module.forward).parameters, args, strict=False)) | kwargs if args else kwargs


def token_rows(input_ids: object) -> list[list[int]]:
    """Ids ``[batch, tokens]`` as lists.

    Raises:
        ArgumentError: they are something else, or there are none.
    """
    rows: list[list[int]] = require_ids(input_ids).tolist()
    return rows


def require_ids(input_ids: object) -> torch.Tensor:
    """Ids ``[batch, tokens]``, at least one of each sequence.

    Raises:
        ArgumentError: they are something else, or there are none.
    """
    if not isinstance(input_ids, torch.Tensor) or input_ids.ndim != 2 or input_ids.is_floating_point():
        what = f"{tuple(input_ids.shape)} of {input_ids.dtype}" if isinstance(input_ids, torch.Tensor) else input_ids
        raise ArgumentError(f"input_ids are {what}: expected token ids [batch, tokens], which name the state")
    if not input_ids.numel():
        raise ArgumentError(f"input_ids are {tuple(input_ids.shape)}: expected at least one token of each sequence")
    return input_ids


def only_new(given: dict[str, Any], held: int) -> dict[str, Any]:
    """Arguments of a pass without the tokens that the cache holds, which assisted generation passes once more.

    Its ids are all tokens where their positions begin at 0, or where a mask, which always covers all, is as long.

    Args:
        given: by name.
        held: tokens in the cache.

    Raises:
        ArgumentError: the pass depends on more than its tokens: embeddings, images, padding, positions of its own; or
            its ids are no ids.
    """
    ids, mask, positions = (given.get(name) for name in ("input_ids", "attention_mask", "position_ids"))
    if ids is None:
        raise ArgumentError(
            "a pass without input_ids has no tokens to name its state by (fix: use a cache of host.new_cache(), whose "
            "state is not stored)"
        )
    ids = require_ids(ids)
    others = [name for name, value in given.items() if name not in WITHOUT_EFFECT and _has_tensor(value)]
    if others:
        raise ArgumentError(
            f"the pass is given {', '.join(others)} besides its tokens, by which alone its state is named (fix: use a "
            f"cache of host.new_cache(), whose state is not stored)"
        )
    if mask is not None and (not isinstance(mask, torch.Tensor) or mask.ndim != 2 or not bool(mask.all())):
        raise ArgumentError(
            "attention_mask hides tokens: a state is named by its tokens alone, each at its own position (fix: batch "
            "prompts of one length, or use a cache of host.new_cache(), whose state is not stored)"
        )
    masked = mask is not None and mask.shape[1] == ids.shape[1]
    placed = positions is not None and positions.shape[-1] == ids.shape[1] and not int(positions.flatten()[0])
    if held and (masked or placed):
        if ids.shape[1] <= held:
            raise ArgumentError(
                f"the cache holds {held} tokens and {ids.shape[1]} were given: expected all of them and at least one "
                f"more (fix: prefixes.cache(input_ids) for each prompt)"
            )
        ids = ids[:, held:]
    count = ids.shape[1]
    changed: dict[str, Any] = {"input_ids": ids}
    if positions is not None:
        positions = positions[..., -count:]
        expected = torch.arange(held, held + count, device=positions.device)
        if positions.shape[-1] != count or not bool((positions == expected).all()):
            raise ArgumentError(
                f"position_ids of the pass are not those after {held} tokens: a state is named by its tokens alone, "
                f"each at its own position (fix: leave them out)"
            )
        changed["position_ids"] = positions
    return given | changed


def _has_tensor(value: object) -> bool:
    """Whether an argument is a tensor, or a list, tuple or mapping with one."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return any(map(_has_tensor, value)) if isinstance(value, list | tuple) else isinstance(value, torch.Tensor)
