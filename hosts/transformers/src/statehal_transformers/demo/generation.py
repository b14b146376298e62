"""One ``generate`` call, with its logits, its time and the state that it left."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from statehal_transformers.compat import Cache

Hook = Callable[[int], None]
"""Called after each forward pass, before the next one, with the number of passes so far."""


@dataclass(frozen=True)
class Batch:
    """Prompts as ids and attention mask ``[prompts, tokens]``, left-padded."""

    ids: torch.Tensor
    mask: torch.Tensor

    @property
    def lengths(self) -> list[int]:
        """Tokens of each prompt, padding not counted."""
        return [int(length) for length in self.mask.sum(1)]


@dataclass(frozen=True)
class Run:
    """What one ``generate`` call gave.

    Attributes:
        tokens: by prompt, the new ids, up to the end of text.
        logits: by step ``[prompts, vocabulary]``.
        seconds: of the whole call.
    """

    tokens: list[list[int]]
    logits: tuple[torch.Tensor, ...]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all prompts, a second; the prompts' own are part of the time and not counted."""
        return sum(map(len, self.tokens)) / self.seconds


class _AfterEachStep(LogitsProcessor):
    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._steps = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._steps += 1
        self._hook(self._steps)
        return scores


def generate(
    model: Any, batch: Batch, cache: dict[str, Cache], *, seed: int, steps: tuple[int, int], hook: Hook
) -> Run:
    """Sample text from ``seed``, in at least and at most ``steps`` steps, with the state in ``cache``, by its name."""
    torch.manual_seed(seed)
    pad = model.generation_config.pad_token_id
    started = time.perf_counter()
    output = model.generate(
        batch.ids,
        attention_mask=batch.mask,
        logits_processor=LogitsProcessorList([_AfterEachStep(hook)]),
        min_new_tokens=steps[0],
        max_new_tokens=steps[1],
        do_sample=True,
        temperature=0.2,
        top_p=0.9,
        pad_token_id=model.config.pad_token_id if pad is None else pad,
        output_logits=True,
        return_dict_in_generate=True,
        **cache,
    )
    seconds = time.perf_counter() - started
    new = output.sequences[:, batch.ids.shape[1] :].tolist()
    return Run([_up_to_end(ids, _end_ids(model)) for ids in new], output.logits, seconds)


def _end_ids(model: Any) -> set[int]:
    end = model.generation_config.eos_token_id
    end = model.config.eos_token_id if end is None else end
    return set(end) if isinstance(end, list) else {end}


def _up_to_end(ids: list[int], ends: set[int]) -> list[int]:
    """The ids through the first that ends a text; what follows is padding."""
    for place, one in enumerate(ids, start=1):
        if one in ends:
            return ids[:place]
    return ids
