"""A layer's weights as the kernels read them."""

from collections.abc import Callable

import torch
from torch import Tensor

from statehal.hookspecs import Prepared

_BLOCK = 32  # TAPS_BLOCK of native/conv/kernels.hpp


class LayerWeights:
    """Taps, oldest first, and the bias, made again when the tensors have changed.

    They are ``[blocks, width + 1, 32]``, channels in blocks, the last of which is filled up with zeros: bfloat16 where
    all are given so, which halves what a decode reads of them, or else float32. Of a layer with silu those are
    multiplied with ``rate``, in float64, and rounded once; of bfloat16 the kernel makes the same.

    Args:
        weight: ``[channels, width]``.
        bias: ``[channels]``; ``None`` counts as zeros.
        rate: ``None`` without an activation.
        check: refuses what does not fit; asked again whenever the tensors have changed.
        watch: of ``Prepared``.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        rate: float | None,
        check: Callable[[Tensor, Tensor | None], None],
        watch: Callable[..., Callable[[], bool]],
    ) -> None:
        self.silu = rate is not None

        def make(weight: Tensor, bias: Tensor | None) -> Tensor:
            check(weight, bias)
            with torch.no_grad(), torch.inference_mode(False):
                bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
                rows = (weight.detach().t(), bias.detach()[None])
                if all(one.dtype is torch.bfloat16 for one in rows):
                    taps = torch.cat(rows)
                else:
                    taps = (torch.cat([one.double() for one in rows]) * (1.0 if rate is None else rate)).float()
                filled = torch.nn.functional.pad(taps, (0, -weight.shape[0] % _BLOCK))
                blocks: Tensor = filled.unflatten(1, (-1, _BLOCK)).transpose(0, 1)
                return blocks.contiguous()

        self._prepared = Prepared(make, weight, bias, watch=watch)

    def taps(self) -> Tensor:
        """The weights as they are now."""
        return self._prepared.get()
