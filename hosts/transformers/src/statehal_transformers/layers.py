"""Cache layers that keep no tensor of their own: they write into the pool and read back from it."""

from typing import Any

import torch

from statehal.errors import ArgumentError, Unsupported
from statehal_transformers.compat import CacheLayer
from statehal_transformers.groups import LayerGroup
from statehal_transformers.paged_attention import PooledRows
from statehal_transformers.steps import Part, Steps


def ask_the_cache(*args: Any, **kwargs: Any) -> None:
    """What a layer answers to a method that concerns all layers at once."""
    raise Unsupported("one layer cannot be changed alone: all layers share their pages (fix: call the cache's method)")


class PooledLayer(CacheLayer):
    """A full-attention layer.

    What concerns all layers at once (``reset``, ``crop``, ``reorder_cache``, the batch methods) is the cache's to do.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, steps: Steps, group: LayerGroup, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.group = group
        self.is_initialized = True  # the pool was allocated before
        self._steps = steps
        self._part: Part = (layer, "kv")
        self._row = (group.heads, group.k_dim, group.dtype)
        self._value_row = (group.heads, group.v_dim, group.dtype)

    @property
    def record_past(self) -> bool:
        """Whether the newest tokens may be cropped; common to all layers of a cache."""
        return self._steps.recording

    @record_past.setter
    def record_past(self, value: bool) -> None:
        self._steps.recording = value

    def activate_past_recording(self) -> None:
        """Keep what a crop of the newest tokens needs, until it comes."""
        self._steps.recording = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Check that keys and values fit the pool's rows; there is nothing to allocate.

        Raises:
            ArgumentError: naming the layer, what came and what the pool holds.
        """
        for name, states, row in (("keys", key_states, self._row), ("values", value_states, self._value_row)):
            if (states.shape[1], states.shape[3], states.dtype) != row:
                raise ArgumentError(
                    f"layer {self.layer} gave {name} of {states.shape[1]} heads x {states.shape[3]} in {states.dtype}, "
                    f"but the pool was planned for {row[0]} heads x {row[1]} in {row[2]} (fix: PoolHost.from_model "
                    f"with this model)"
                )
            if states.requires_grad:
                raise ArgumentError(
                    f"layer {self.layer} gave {name} that require gradients, which the pool does not keep (fix: run "
                    f"the model under torch.no_grad() or torch.inference_mode())"
                )

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Write new keys and values ``[batch, heads, tokens, dim]`` into the pool, and read what attention needs.

        Returns:
            Keys and values ``[batch, heads, visible tokens, dim]``, new tensors equal to a ``DynamicCache``'s in shape,
            strides and every bit; or, where attention reads the pool itself, twice the ``PooledRows``.

        Raises:
            PoolExhausted: the pool has too few pages; the cache is as it was.
            ArgumentError: heads, widths, dtype or batch size do not fit.
        """
        self.lazy_initialization(key_states, value_states)
        batch, _, tokens, _ = key_states.shape
        visible, _ = self.get_mask_sizes(tokens)
        step = self._steps.enter(self._part, batch, tokens)
        ids = step.ids[self.group.name]
        self.group.store(self.layer, ids, key_states, value_states)
        keys: Any
        values: Any
        if step.paged:
            keys = values = PooledRows(self.group, self.layer, ids, visible)
        else:
            keys, values = self.group.load(self.layer, ids, 0, ids.tokens)
            if ids.tokens > visible:  # recorded tokens that the mask does not cover
                keys, values = keys[:, :, -visible:], values[:, :, -visible:]
        self._steps.leave(self._part, tokens)
        return keys, values

    def get_seq_length(self) -> int:
        """Tokens that this layer has written and not cropped."""
        return self._steps.seen[self._part]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length of the keys that ``update`` will return for that many new tokens, and the position of the first."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: a full-attention layer has no maximum of its own."""
        return -1

    reset = reorder_cache = crop = batch_repeat_interleave = batch_select_indices = ask_the_cache
    offload = prefetch = ask_the_cache


class PooledSlidingLayer(PooledLayer):
    """A sliding-window layer: it reads the last ``sliding_window - 1`` tokens and the new ones."""

    is_sliding = True

    def __init__(self, steps: Steps, group: LayerGroup, layer: int) -> None:
        super().__init__(steps, group, layer)
        if group.window is None:
            raise ArgumentError(f"layer {layer} slides, but sub-pool {group.name!r} has no window")
        self.sliding_window = group.window

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        seen, reach = self.get_seq_length(), self.sliding_window - 1
        return min(seen, reach) + query_length, max(seen - reach, 0)

    def get_max_length(self) -> int:
        """The window."""
        return self.sliding_window
