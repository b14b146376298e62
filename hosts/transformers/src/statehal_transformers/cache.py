"""A transformers cache whose state lives in a statehal pool."""

import weakref
from collections.abc import MutableSequence, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from statehal.errors import ArgumentError
from statehal_transformers.compat import Cache
from statehal_transformers.layers import PooledLayer, PooledSlidingLayer
from statehal_transformers.linear_layers import PooledHybridLayer, PooledLinearLayer
from statehal_transformers.steps import Steps

if TYPE_CHECKING:
    from statehal.pool import Pages
    from statehal_transformers.host import PoolHost


class PooledCache(Cache):
    """The state of one batch, for ``generate`` and ``forward``; made by ``PoolHost.new_cache``.

    It stands in for ``DynamicCache``: the keys and values that its layers return are equal in shape, strides and every
    bit. Conv layers return no state but a token for ``PoolHost.routed``; recurrent states are copies. Beam search
    shares pages and copies a partly filled one before the first write into it. Use it as a context manager, or call
    ``release``; the pages of a cache that was forgotten come back with the host's next cache or step.
    """

    def __init__(self, host: "PoolHost") -> None:
        self._host = host
        self._steps = Steps(host)
        super().__init__(layers=[self._layer(index) for index in range(host.num_layers)])
        forgotten: MutableSequence[tuple[list[Any], ...]] = host.forgotten
        slots = self._steps.conv.slots
        held = (self._steps.sequences.rows, slots.rows, slots.saved)
        # A finalizer may run inside a method of the pool, or in another thread: it only notes the handles down.
        self._finalizer = weakref.finalize(self, forgotten.append, held)
        self._finalizer.atexit = False

    def as_argument(self) -> dict[str, Self]:
        """``{name: cache}`` for ``model.generate(**inputs, **cache.as_argument())``, under the name it has there."""
        return {self._host.keyword: self}

    @property
    def pages(self) -> tuple["Pages", ...]:
        """The handle of each sequence on its tokens; none where the model keeps no tokens."""
        return tuple(self._steps.sequences.rows)

    @property
    def slots(self) -> tuple["Pages", ...]:
        """The handle of each sequence on its slot; none where the model has no conv layers."""
        return tuple(self._steps.conv.slots.rows)

    @property
    def length(self) -> int:
        """Tokens of each sequence."""
        return self._steps.sequences.length

    @property
    def batch_size(self) -> int:
        """Sequences, -1 before the first step."""
        return self._steps.batch or -1

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._host.forgotten:
            self._host.collect()
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Any:
        return self._linear(layer_idx).get_conv_state()

    def update_conv_state(self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> Any:
        if self._host.forgotten:
            self._host.collect()
        return self._linear(layer_idx).update_conv_state(conv_states)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        return self._linear(layer_idx).get_recurrent_state()

    def reset(self) -> None:
        """Forget everything; the pages go back to the pool."""
        self._steps.reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest ``-tokens_to_remove`` tokens, then what no window reaches any more.

        Raises:
            ArgumentError: the number is positive, which once meant the length to keep.
            Unsupported: a window would reach back to evicted tokens, or a conv or recurrent layer to a state that is
                not kept any more.
        """
        if tokens_to_remove > 0:
            raise ArgumentError(f"crop({tokens_to_remove}): expected how many tokens to remove as a negative number")
        self._steps.crop(-tokens_to_remove)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Make sequence ``i`` what sequence ``beam_idx[i]`` was: handles move or are shared, no state is copied."""
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Put ``repeats`` sequences that share their pages in the place of each."""
        self._select(torch.arange(self._steps.batch).repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the sequences that an index tensor or a mask selects."""
        self._select(indices)

    def copy(self) -> "PooledCache":
        """A second cache that shares all pages; each copies a page before it writes into it."""
        other = self._host.new_cache()
        other._steps.share(self._steps)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> "PooledCache":
        return self.copy()

    def release(self) -> None:
        """Give the pages back for good; more tokens are refused from then on. Harmless when repeated."""
        self._steps.reset()
        self._steps.released = True
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _select(self, indices: torch.Tensor | Sequence[int]) -> None:
        sequences = torch.arange(self._steps.batch)
        if len(sequences):
            self._steps.select(sequences[torch.as_tensor(indices, device="cpu")].tolist())

    def _layer(self, index: int) -> Any:
        host, steps = self._host, self._steps
        group = next((group for group in host.groups if index in group.spec.layers), None)
        conv = next((group for group in host.conv_groups if index in group.spec.layers), None)
        if group is None:
            assert conv is not None, "every layer keeps something"
            return PooledLinearLayer(steps, conv, index)
        if conv is None:
            return (PooledLayer if group.window is None else PooledSlidingLayer)(steps, group, index)
        return PooledHybridLayer(steps, group, conv, index)

    def _linear(self, layer: int) -> PooledLinearLayer:
        found = self.layers[layer]
        if not isinstance(found, PooledLinearLayer):
            raise ArgumentError(f"layer {layer} has no conv or recurrent state: it is a {type(found).__name__}")
        return found
