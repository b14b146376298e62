"""A layer's weights as the kernels read them."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from statehal.hookspecs import Prepared


class LayerWeights:
    """Taps, oldest first, and the bias: float32 ``[width + 1, channels]``, made again where they lie.

    The memory stays the same when weights change, so a captured graph reads those of the last call or ``prepare``: a
    replay itself does not see a change.

    Args:
        weight: ``[channels, width]``.
        bias: ``[channels]``; ``None`` counts as zeros.
        check: refuses what does not fit; asked again whenever the tensors have changed.
        earlier: the layer's weights until now, whose memory is taken over.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        activation: Literal["silu"] | None,
        check: Callable[[Tensor, Tensor | None], None],
        earlier: "LayerWeights | None" = None,
    ) -> None:
        self.silu = activation == "silu"
        channels, width = weight.shape
        if earlier is None:
            with torch.inference_mode(False):
                self._taps = torch.empty(width + 1, channels, dtype=torch.float32, device=weight.device)
        else:
            self._taps = earlier._taps

        def fill(weight: Tensor, bias: Tensor | None) -> Tensor:
            check(weight, bias)
            with torch.no_grad():
                self._taps[:width].copy_(weight.t())
                if bias is None:
                    self._taps[width].zero_()
                else:
                    self._taps[width].copy_(bias)
            return self._taps

        self._prepared = Prepared(fill, weight, bias)

    def taps(self) -> Tensor:
        """The weights as they are now."""
        return self._prepared.get()
