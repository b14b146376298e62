"""A layer's weights as the kernels read them."""

from collections.abc import Callable

import torch
from torch import Tensor

from statehal.hookspecs import Prepared


class LayerWeights:
    """Taps, oldest first, and the bias: float32 ``[width + 1, channels]``, made again when the tensors have changed.

    Of a layer with silu all are multiplied with ``rate``, in float64, and rounded once.

    Args:
        weight: ``[channels, width]``.
        bias: ``[channels]``; ``None`` counts as zeros.
        rate: ``None`` without an activation.
        check: refuses what does not fit; asked again whenever the tensors have changed.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        rate: float | None,
        check: Callable[[Tensor, Tensor | None], None],
    ) -> None:
        self.silu = rate is not None

        def make(weight: Tensor, bias: Tensor | None) -> tuple[int, Tensor]:
            check(weight, bias)
            with torch.no_grad(), torch.inference_mode(False):
                rows = [weight.detach().t().double()]
                rows.append(weight.new_zeros(1, weight.shape[0], dtype=torch.float64))
                if bias is not None:
                    rows[1] += bias.detach()
                taps = (torch.cat(rows) * (1.0 if rate is None else rate)).float().contiguous()
            return taps.data_ptr(), taps

        self._prepared = Prepared(make, weight, bias)

    def taps(self) -> int:
        """The address of the weights as they are now."""
        return self._prepared.get()[0]
