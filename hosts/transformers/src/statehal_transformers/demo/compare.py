"""Two runs, logit by logit and bit for bit."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Difference:
    """The first step whose logits differ.

    Attributes:
        step: 0 is the prompt's own forward pass.
        prompt: the first that differs there.
        logits: how many of the step differ.
        largest: absolute difference; ``nan`` where one side is no number.
    """

    step: int
    prompt: int
    logits: int
    largest: float


@dataclass(frozen=True)
class Comparison:
    """How many logits were compared, and the first difference."""

    steps: tuple[int, int]
    logits: int
    difference: Difference | None

    @property
    def equal(self) -> bool:
        """Whether both runs took as many steps and every bit agrees."""
        return self.difference is None and self.steps[0] == self.steps[1]


def compare(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> Comparison:
    """Compare float32 logits ``[prompts, vocabulary]`` of each step; NaN equals NaN of the same bits only."""
    count, difference = 0, None
    for step, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        count += a.numel()
        differs = a.view(torch.int32) != b.view(torch.int32)
        if bool(differs.any()):
            prompt = int(differs.any(1).nonzero()[0])
            difference = Difference(step, prompt, int(differs.sum()), float((a - b).abs().max()))
            break
    return Comparison((len(ours), len(theirs)), count, difference)
