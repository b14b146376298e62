"""Cache layers of conv and recurrent state, which lie in a slot of the pool."""

from typing import Any

import torch

from statehal.errors import ArgumentError, Unsupported
from statehal_transformers.compat import LinearCacheLayer
from statehal_transformers.conv_group import ConvGroup
from statehal_transformers.groups import LayerGroup
from statehal_transformers.layers import PooledLayer, ask_the_cache
from statehal_transformers.steps import Part, Steps


class PooledLinearLayer(LinearCacheLayer):
    """A layer with a causal convolution and, where it has one, a recurrent state.

    The convolution is ``CausalConv1d`` of the pool's backend. What the model is given in the place of a conv state is a
    ``ConvState``, which the functions of ``PoolHost.routed`` take.
    """

    is_compileable = False
    is_croppable = True
    number_of_states = 1
    record_past = PooledLayer.record_past
    activate_past_recording = PooledLayer.activate_past_recording

    def __init__(self, steps: Steps, group: ConvGroup, layer: int) -> None:
        self.is_croppable = not group.states  # a recurrent state cannot go back
        self.layer = layer
        self.conv_group = group
        self._steps = steps
        self._conv_part: Part = (layer, "conv")
        self._state_part: Part = (layer, "state")

    @property
    def has_previous_state(self) -> dict[int, bool]:
        """``{0: whether the layer has taken tokens}``."""
        return {0: self._steps.seen[self._conv_part] > 0}

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the pool was allocated before."""

    def get_conv_state(self) -> "ConvState | None":
        """What ``causal_conv1d_update`` takes; ``None`` before the first tokens."""
        return ConvState(self) if self._steps.seen[self._conv_part] else None

    def update_conv_state(self, conv_states: torch.Tensor, state_idx: int = 0, **kwargs: Any) -> Any:
        """Take new inputs ``[batch, channels, tokens]`` along to ``causal_conv1d_fn``, which convolves them."""
        return ConvState(self, conv_states)

    def convolve(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
    ) -> torch.Tensor:
        """Convolve new inputs after those that the slots hold, and take them in.

        Args:
            x: ``[batch, channels, tokens]``.
            weight: ``[channels, width]``.
            bias: ``[channels]``.
            activation: ``None`` or ``"silu"``.

        Returns:
            ``[batch, channels, tokens]``.

        Raises:
            PoolExhausted: the pool has too few slots or pages; the cache is as it was.
            ArgumentError: channels, dtype or batch size do not fit.
        """
        batch, channels, tokens = x.shape
        spec = self.conv_group.spec
        if (channels, x.dtype, weight.shape[-1]) != (spec.channels, self.conv_group.dtype, spec.width):
            raise ArgumentError(
                f"layer {self.layer} gave conv inputs of {channels} channels in {x.dtype} and {weight.shape[-1]} taps, "
                f"but the pool was planned for {spec.channels} channels in {self.conv_group.dtype} and {spec.width} "
                f"taps (fix: PoolHost.from_model with this model)"
            )
        if x.requires_grad:
            raise ArgumentError(
                f"layer {self.layer} gave conv inputs that require gradients, which the pool does not keep (fix: run "
                f"the model under torch.no_grad() or torch.inference_mode())"
            )
        self.conv_group.prepare(self.layer, weight, bias, activation)
        step = self._steps.enter(self._conv_part, batch, tokens).conv[self.conv_group.name]
        result = self.conv_group.convolve(self.layer, x, step)
        self._steps.leave(self._conv_part, tokens)
        return result

    def get_recurrent_state(self) -> torch.Tensor | None:
        """The recurrent state ``[batch, *state]``, a copy; ``None`` before the first tokens and where there is none."""
        if self._state_part not in self._steps.seen or not self._steps.seen[self._state_part]:
            return None
        slots = self._steps.slots(self.conv_group)
        state = self.conv_group.load(self.layer, slots).as_subclass(RecurrentState)
        state.home = self
        return state

    def update_recurrent_state(self, recurrent_states: torch.Tensor, state_idx: int = 0, **kwargs: Any) -> Any:
        """Write the state after this pass's tokens into the pool.

        Raises:
            ArgumentError: shape does not fit, or the layer's convolution has not run in this pass.
        """
        tokens = self._steps.missing(self._state_part) if self._state_part in self._steps.seen else 0
        batch, *shape = recurrent_states.shape
        if not tokens or tuple(shape) != self.conv_group.spec.state:
            raise ArgumentError(
                f"layer {self.layer} stored a recurrent state of {tuple(shape)} for {tokens} new tokens: expected "
                f"{self.conv_group.spec.state}, once a forward pass, after the convolution"
            )
        self._steps.enter(self._state_part, batch, tokens)
        self.conv_group.store(self.layer, self._steps.slots(self.conv_group), recurrent_states)
        self._steps.leave(self._state_part, tokens)
        return recurrent_states

    def get_max_length(self) -> int:
        """-1: a slot takes any number of tokens."""
        return -1

    reset = reorder_cache = crop = offload = prefetch = ask_the_cache


class PooledHybridLayer(PooledLinearLayer, PooledLayer):
    """A layer that attends and convolves."""

    def __init__(self, steps: Steps, group: LayerGroup, conv_group: ConvGroup, layer: int) -> None:
        PooledLayer.__init__(self, steps, group, layer)
        PooledLinearLayer.__init__(self, steps, conv_group, layer)

    lazy_initialization = PooledLayer.lazy_initialization
    get_max_length = PooledLayer.get_max_length


class ConvState:
    """Stands for a layer's conv state in the model's code, and carries new inputs; it is no tensor.

    Only the functions that ``PoolHost.routed`` puts into the model's module can use it; anything else that touches it
    is told so.
    """

    __slots__ = ("inputs", "layer")

    def __init__(self, layer: PooledLinearLayer, inputs: torch.Tensor | None = None) -> None:
        self.layer = layer
        self.inputs = inputs

    def __getattr__(self, name: str) -> Any:
        raise self._not_routed()

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._not_routed()

    @staticmethod
    def _not_routed() -> Unsupported:
        return Unsupported(
            "the model's own convolution was given a conv state that lies in a pool: the cache alone cannot route it "
            "to the backend (fix: run the model inside `with host.routed():`)"
        )


class RecurrentState(torch.Tensor):
    """A copy of a layer's recurrent state that knows where it came from; operations on it give plain tensors."""

    home: PooledLinearLayer
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
