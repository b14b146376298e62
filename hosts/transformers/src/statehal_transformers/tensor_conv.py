"""A backend's convolution for caches that keep their conv states in tensors, such as transformers' own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from statehal.spec import ConvRecurrent
from statehal_transformers.conv_group import channels_last

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.hookspecs import CausalConv1d
    from statehal.ids import KernelIds
    from statehal_transformers.host import PoolHost


class TensorConv:
    """``causal_conv1d_fn`` and ``causal_conv1d_update`` as models call them, computed by a backend in empty slots.

    Within a backend a token's output does not depend on the method by which it came: these functions give the bits that
    the pooled cache's layers give, from states that transformers keeps.
    """

    def __init__(self, binding: "Binding") -> None:
        self._binding = binding
        self._bound: dict[tuple[int, int, torch.dtype], tuple[CausalConv1d, KernelIds]] = {}

    def causal_conv1d_fn(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Convolve ``[batch, channels, tokens]``, with zeros before the first."""
        batch, channels, tokens = hidden_states.shape
        conv, slots = self._slots(batch, weight, hidden_states.dtype)
        conv.prepare(0, weight, bias, activation=activation)
        start = torch.arange(batch + 1, device=hidden_states.device) * tokens
        result = conv.prefill(0, channels_last(hidden_states), start, slots)
        conv.commit(slots, torch.ones_like(start[1:]))
        return result.view(batch, tokens, channels).transpose(1, 2)

    def causal_conv1d_update(
        self,
        hidden_states: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Convolve after the state ``[batch, channels, width]``, and move that on."""
        inputs = torch.cat([conv_state, hidden_states], dim=-1)
        conv_state.copy_(inputs[..., -conv_state.shape[-1] :])
        return self.causal_conv1d_fn(inputs, weight, bias, activation)[..., -hidden_states.shape[-1] :]

    def _slots(self, batch: int, weight: torch.Tensor, dtype: torch.dtype) -> "tuple[CausalConv1d, KernelIds]":
        channels, width = weight.shape
        key = channels, width, dtype
        if key not in self._bound or len(self._bound[key][1]) < batch:
            spec = ConvRecurrent("conv", (0,), channels=channels, width=width, dtype=str(dtype))
            pool = self._binding.allocate(self._binding.plan([spec], tokens=1, requests=batch))
            slots = pool["conv"].kernel_ids(pool.alloc(batch).page_ids())
            self._bound[key] = self._binding.conv(pool["conv"]), slots
        conv, slots = self._bound[key]
        return conv, slots[:batch]


@contextmanager
def same_convolution(host: "PoolHost") -> Iterator[None]:
    """A block in which the host's model convolves with the host's backend whatever cache it is given.

    Transformers' own convolution sums in another order, so logits differ in their last bits whatever the cache does.
    With the same convolution on both sides every bit must agree.
    """
    conv = TensorConv(host.binding)
    names = ("causal_conv1d_fn", "causal_conv1d_update")
    own = [(module, name, vars(module)[name]) for module in host.modules for name in names]
    try:
        for module, name, _ in own:
            setattr(module, name, getattr(conv, name))
        yield
    finally:
        for module, name, function in own:
            setattr(module, name, function)
