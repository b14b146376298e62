"""A model's pool: allocated once, used by one cache after the other."""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import torch

import statehal
from statehal_transformers.cache import PooledCache
from statehal_transformers.compat import PreTrainedConfig
from statehal_transformers.groups import LayerGroup, layer_group
from statehal_transformers.specs import attention_specs

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.pool import Pages, PoolPlan, StatePool


@dataclass(frozen=True, eq=False)
class PoolHost:
    """Binding, plan and pool of one model. Belongs to one thread, as its pool does.

    Attributes:
        groups: one a sub-pool.
        num_layers: layers of the model.
        forgotten: pages of caches that were collected without ``release``; ``collect`` gives them back.
    """

    binding: "Binding"
    plan: "PoolPlan"
    pool: "StatePool"
    groups: tuple[LayerGroup, ...]
    num_layers: int
    forgotten: "deque[list[Pages]]" = field(default_factory=deque, repr=False)

    @classmethod
    def from_config(
        cls,
        config: PreTrainedConfig,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        total_bytes: int | None = None,
        tokens: int | None = None,
        page_size: int = 16,
        backend: str | None = None,
    ) -> Self:
        """Choose a backend, plan the pool and allocate it.

        Args:
            config: the model's; its layer types decide which sub-pools there are.
            dtype: of the model's keys and values.
            device: where the model computes.
            total_bytes: the pool's budget.
            tokens: instead of a budget: tokens that all sequences together may hold, each rounded up to whole pages.
            page_size: tokens of a page.
            backend: by name; otherwise the best one that is ready for the device.

        Raises:
            Unsupported: a layer type that the pooled cache does not keep; names it.
            PlanError: the budget is too small; names the numbers.
            BackendError: no backend, or not the one asked for, can run.
        """
        specs = attention_specs(config, dtype)
        binding = statehal.bind(torch.empty(0, device=device).device, backend=backend)  # with the device's number
        plan = binding.plan(specs, total_bytes=total_bytes, tokens=tokens, page_size=page_size)
        pool = binding.allocate(plan)
        groups = tuple(layer_group(binding, pool, spec) for spec in specs)
        return cls(binding, plan, pool, groups, sum(len(spec.layers) for spec in specs))

    def new_cache(self) -> PooledCache:
        """An empty cache on the pool."""
        self.collect()
        return PooledCache(self)

    def collect(self) -> int:
        """Give back the pages of caches that were forgotten; returns how many caches that were."""
        count = 0
        while self.forgotten:
            for pages in self.forgotten.popleft():
                self.pool.free(pages)
            count += 1
        return count
