"""A sub-pool of conv and recurrent state as its layers see it: the convolution, and the recurrent rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from statehal.errors import ArgumentError
from statehal.spec import ConvRecurrent

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.hookspecs import CausalConv1d
    from statehal.ids import KernelIds
    from statehal.layout import AddressForm
    from statehal.pool import SubPool

Method = Literal["prefill", "decode", "verify"]


@dataclass(frozen=True)
class ConvStep:
    """What the conv layers of one sub-pool do in a forward pass.

    Attributes:
        method: of ``CausalConv1d``.
        slots: ``[batch]``.
        query_start_loc: ``[batch + 1]``.
        has_initial_state: ``[batch]``.
        snapshots: ``(sequence, token_end, slot)`` of a prefill whose last tokens may be rejected.
    """

    method: Method
    slots: "KernelIds"
    query_start_loc: torch.Tensor
    has_initial_state: torch.Tensor
    snapshots: "tuple[torch.Tensor, torch.Tensor, KernelIds] | None" = None


@dataclass(frozen=True)
class ConvGroup:
    """A sub-pool of slots. ``conv`` has the backend's own bound methods.

    Attributes:
        states: by model layer id, the recurrent rows ``[slots, *state]``; empty where there are none.
        form: what indexes them.
        prepared: by model layer id, the weights that the backend was given last.
    """

    subpool: "SubPool"
    spec: ConvRecurrent
    dtype: torch.dtype
    conv: "CausalConv1d"
    states: Mapping[int, torch.Tensor]
    form: "AddressForm | None"
    prepared: dict[int, tuple[object, ...]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The sub-pool's name."""
        return self.spec.name

    def prepare(self, layer: int, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> None:
        """Hand a layer's weights to the backend, once for each memory that they lie in; it sees writes by itself.

        Raises:
            ArgumentError: an activation that ``CausalConv1d`` does not have.
        """
        if activation not in (None, "silu", "swish"):
            raise ArgumentError(
                f"layer {layer} of {self.name!r} has activation {activation!r}: expected None or 'silu'"
            )
        bias_memory = None if bias is None else bias.data_ptr()
        given = (weight.data_ptr(), weight.dtype, weight.stride(), bias_memory, activation)
        if self.prepared.get(layer) != given:
            self.conv.prepare(layer, weight, bias, activation=None if activation is None else "silu")
            self.prepared[layer] = given

    def convolve(self, layer: int, x: torch.Tensor, step: ConvStep) -> torch.Tensor:
        """Convolve new inputs ``[batch, channels, tokens]`` and take them into the windows; result of that shape."""
        batch, channels, tokens = x.shape
        rows = channels_last(x)
        if step.method == "decode":
            result = self.conv.decode(layer, rows, step.slots)
        elif step.method == "verify":
            result = self.conv.verify(layer, rows, step.slots, query_start_loc=step.query_start_loc)
        else:
            result = self.conv.prefill(
                layer, rows, step.query_start_loc, step.slots, step.has_initial_state, snapshots=step.snapshots
            )
        return result.view(batch, tokens, channels).transpose(1, 2)

    def load(self, layer: int, slots: "KernelIds") -> torch.Tensor:
        """The recurrent state ``[batch, *state]`` of a layer: a new, contiguous tensor."""
        return self.states[layer].index_select(0, self._rows(slots))

    def store(self, layer: int, slots: "KernelIds", state: torch.Tensor) -> None:
        """Write a layer's recurrent state into the pool."""
        rows = self.states[layer]
        rows.index_copy_(0, self._rows(slots), state.to(rows.dtype))

    def _rows(self, slots: "KernelIds") -> torch.Tensor:
        assert self.form is not None, "only a group with recurrent rows is asked for them"
        return slots.of(self.form)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """``[batch, channels, tokens]`` as ``[batch*tokens, channels]`` with neighbouring channels, a view if they are."""
    rows = x.transpose(1, 2).flatten(0, 1)
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def conv_group(binding: "Binding", pool: Any, spec: ConvRecurrent) -> ConvGroup:
    """Bind the operations of one sub-pool and take its views."""
    subpool = pool[spec.name]
    states, form = {}, None
    if spec.state is not None:
        kind = subpool.layout.kinds("state")[0]
        form = subpool.layout.form("state", kind)
        for layer in spec.layers:
            rows = subpool.view("state", layer, kind)
            states[layer] = rows if kind == "row" else rows[:, 0]  # a slot is a page of one
    dtype = getattr(torch, spec.dtype)
    return ConvGroup(subpool, spec, dtype, binding.conv(subpool), states, form)
