"""A model's pool: allocated once, used by one cache after the other."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import torch

import statehal
from statehal.errors import Unsupported
from statehal.hookspecs import IDS64
from statehal.spec import Attention, ConvRecurrent, Latent, Spec
from statehal_transformers.cache import PooledCache
from statehal_transformers.compat import cache_keyword
from statehal_transformers.conv_group import ConvGroup, conv_group
from statehal_transformers.groups import LayerGroup, layer_group
from statehal_transformers.paged_attention import reading_pages
from statehal_transformers.routes import conv_modules, routed
from statehal_transformers.specs import FIX, model_specs

if TYPE_CHECKING:
    from statehal.binding import Binding
    from statehal.layout import PoolLayout
    from statehal.pool import PoolPlan, StatePool


@dataclass(frozen=True, eq=False)
class PoolHost:
    """Binding, plan and pool of one model. Belongs to one thread, as its pool does.

    Attributes:
        groups: one a sub-pool of tokens.
        conv_groups: one a sub-pool of slots.
        num_layers: layers of the model.
        keyword: what the model calls its cache.
        model: whose state it is.
        modules: where the functions lie that ``routed`` replaces.
        forgotten: pages of caches that were collected without ``release``; ``collect`` gives them back.
    """

    binding: "Binding"
    plan: "PoolPlan"
    pool: "StatePool"
    groups: tuple[LayerGroup, ...]
    conv_groups: tuple[ConvGroup, ...]
    num_layers: int
    keyword: str
    model: Any = field(repr=False)
    modules: tuple[ModuleType, ...]
    forgotten: "deque[tuple[list[Any], ...]]" = field(default_factory=deque, repr=False)

    @classmethod
    def from_model(
        cls,
        model: Any,
        *,
        total_bytes: int | None = None,
        tokens: int | None = None,
        requests: int = 1,
        page_size: int = 16,
        draft_tokens: int = 0,
        backend: str | None = None,
        layouts: "Callable[[Spec, int], PoolLayout] | None" = None,
    ) -> Self:
        """Find out what a model keeps, choose a backend, plan the pool and allocate it.

        The model runs one token with transformers' own cache: what that then holds says how wide the rows are.

        Args:
            model: where it lies, the pool lies, and its dtypes are the pool's.
            total_bytes: the pool's budget, which tokens and sequences share as they come.
            tokens: instead of a budget: tokens that all sequences together may hold, each rounded up to whole pages.
            requests: beside ``tokens``: sequences at a time, for models with conv or recurrent state; a beam is one.
            page_size: tokens of a page.
            draft_tokens: how many tokens of a forward pass assisted generation may reject in conv layers, which keep
                that many more inputs.
            backend: by name; otherwise the best one that is ready for the device.
            layouts: of what attends, by spec and page size, with the row form; by default the backend's.

        Raises:
            Unsupported: a layer type that the pooled cache does not keep, or convolutions that cannot be routed.
            PlanError: the budget is too small; names the numbers.
            BackendError: no backend, or not the one asked for, can run.
        """
        binding = statehal.bind(torch.empty(0, device=model.device).device, backend=backend)  # with the device's number
        specs, modules = model_specs(model, draft_tokens), conv_modules(model)
        if not modules and any(isinstance(spec, ConvRecurrent) for spec in specs):
            raise Unsupported(
                f"{model.config.model_type!r} keeps conv states, but calls no causal_conv1d_fn that could be routed "
                f"to the pool {FIX}"
            )

        def layout(spec: Spec, size: int) -> "PoolLayout":
            return binding.layout(spec, size) if layouts is None or spec.kind == "slots" else layouts(spec, size)

        plan = statehal.plan(
            specs,
            total_bytes=total_bytes,
            tokens=tokens,
            requests=requests,
            page_size=page_size,
            layouts=layout,
            ids64=IDS64 in binding.selection.info.capabilities,
        )
        pool = binding.allocate(plan)
        return cls(
            binding,
            plan,
            pool,
            tuple(layer_group(binding, pool, spec) for spec in specs if isinstance(spec, Attention | Latent)),
            tuple(conv_group(binding, pool, spec) for spec in specs if isinstance(spec, ConvRecurrent)),
            len({layer for spec in specs for layer in spec.layers}),
            cache_keyword(model),
            model,
            modules,
        )

    def routed(self) -> AbstractContextManager[None]:
        """A block in which the model's convolutions are the backend's, over the slots of the cache that it is given.

        Needed for models with conv layers, harmless for others. The functions of the model's module are replaced and,
        at the end of the outermost block, put back.
        """
        return routed(self.modules)

    def reading_pages(self) -> AbstractContextManager[None]:
        """A block in which the model's attention reads keys and values where they lie in the pool, not gathered copies.

        Its sums have another order than those of the model's own attention: logits agree to 1e-5 in float32.

        Raises:
            Unsupported: the model keeps latent rows, which it expands before it attends.
        """
        for group in self.groups:
            if isinstance(group.spec, Latent):
                raise Unsupported(
                    f"layers of {group.name!r} keep latent rows, which the model expands before it attends: no "
                    f"attention can read them from the pool (fix: run the model without reading_pages)"
                )
        return reading_pages(self.model)

    def new_cache(self) -> PooledCache:
        """An empty cache on the pool."""
        self.collect()
        return PooledCache(self)

    def collect(self) -> int:
        """Give back the pages of caches that were forgotten; returns how many caches that were."""
        count = 0
        while self.forgotten:
            rows, slots, saved = self.forgotten.popleft()
            for handles in (rows, slots, *saved):
                self.pool.free(handles)
            count += 1
        return count
