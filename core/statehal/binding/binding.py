"""The binding: one device, one backend, decided once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from statehal import env, trace
from statehal.binding.checks import CheckedCausalConv1d, CheckedKVWriter
from statehal.binding.description import Description
from statehal.binding.layouts import layout_from
from statehal.binding.library import compile_safe
from statehal.binding.merge import BoundMethods, merge, wrapped
from statehal.binding.translating import TranslatingKVWriter
from statehal.errors import ArgumentError, LayoutError, WrongIdSpace
from statehal.hookspecs import (
    IDS64,
    CausalConv1d,
    CausalConv1dRequest,
    KVWriter,
    KVWriteRequest,
    MemoryOps,
    MemoryOpsRequest,
)
from statehal.ids import IdSpace
from statehal.layout import PoolLayout
from statehal.pool import PoolPlan, StatePool, SubPool
from statehal.pool.member import Hygiene
from statehal.pool.planner import plan
from statehal.registry import Registry, Selection, get
from statehal.spec import Spec


def bind(
    device: str | torch.device = "cpu",
    backend: str | None = None,
    compile_safe: bool = False,
    check: bool | None = None,
    *,
    registry: Registry | None = None,
) -> "Binding":
    """Choose the backend for a device and bind to it.

    Args:
        device: a torch device.
        backend: its name; ``None`` leaves the choice to ``STATEHAL_BACKEND``, a plugin, or the highest priority.
        compile_safe: operations as ``torch.library`` operators whose mutations ``torch.compile`` sees.
        check: add the checks that cost a device sync; ``None`` reads ``STATEHAL_CHECK``.
        registry: the plugins to choose from; the process's own by default.

    Raises:
        ArgumentError: torch knows no such device.
        UnknownBackend, BackendNotReady, AmbiguousBackend, PluginBroken, ContractMismatch, BackendConflict: why not.
    """
    try:
        name = str(torch.device(device))
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(f"device={device!r} is not a device of torch: {str(error).splitlines()[0]}") from None
    registry = registry or get()
    selection = registry.select(name, backend)
    return Binding(name, selection, registry, compile_safe, env.check() if check is None else check)


@dataclass(frozen=True, eq=False)
class Binding:
    """A device and its backend; immutable, and shared freely between threads.

    Attributes:
        device: torch's name of it.
        selection: which backend, and why.
        compile_safe: as given to ``bind``.
        check: as given to ``bind``, or to ``STATEHAL_CHECK``.
        memory: the memory operations, merged from every provider.
    """

    device: str
    selection: Selection
    registry: Registry = field(repr=False)
    compile_safe: bool = False
    check: bool = False
    memory: MemoryOps = field(init=False, repr=False)

    def __post_init__(self) -> None:
        merged = self._merge("statehal_memory_ops", "memory", MemoryOpsRequest(self.device))
        object.__setattr__(self, "memory", cast("MemoryOps", merged))

    @property
    def backend(self) -> str:
        """Name of the chosen backend."""
        return self.selection.name

    def plan(
        self,
        specs: Iterable[Spec],
        *,
        total_bytes: int | None = None,
        tokens: int | None = None,
        requests: int = 1,
        page_size: int = 16,
        waste_limit: float = 0.02,
        budgets: Mapping[str, int] | None = None,
    ) -> PoolPlan:
        """Divide a budget, with the layouts that this backend wants; see ``statehal.plan``."""
        return plan(
            specs,
            total_bytes=total_bytes,
            tokens=tokens,
            requests=requests,
            page_size=page_size,
            layouts=self.layout,
            waste_limit=waste_limit,
            budgets=budgets,
            ids64=IDS64 in self.selection.info.capabilities,
        )

    def layout(self, spec: Spec, page_size: int) -> PoolLayout:
        """The tight layout that this backend wants for a spec."""
        return self._layout(spec, page_size)[1]

    def allocate(self, plan: PoolPlan, *, hygiene: Hygiene = "zero") -> StatePool:
        """Allocate a pool on this device.

        Args:
            hygiene: what happens to a page that was used before: ``"zero"``, ``"none"``, or ``"poison"``, a debug mode
                that fills every page handed out with NaN.

        Raises:
            AddressBoundError: the plan's ids pass int32 and this backend does not declare ``ids64``.
        """
        if IDS64 not in self.selection.info.capabilities:
            for name, sub in plan.subpools.items():
                sub.layout.check_bounds(name)
        return StatePool(plan, self.device, self.memory, hygiene=hygiene, check=self.check)

    def kv(self, subpool: SubPool, *, ids: IdSpace | None = None) -> KVWriter:
        """The KV writer of a sub-pool; bind once and keep it.

        Args:
            ids: the space of the ids that its methods will be given; ``None`` stands for the sub-pool's own kernel ids
                of tokens, ``subpool.space("kernel")``. Where it is ``subpool.space("virtual")``, the ids that a host
                holds, every call translates first, and ``describe`` says so.

        Raises:
            ArgumentError: the sub-pool lies on another device.
            LayoutError: it keeps state of the other kind.
            WrongIdSpace: ``ids`` is a space that nothing leads from to the sub-pool's rows, such as another sub-pool's.
            PluginBroken: a plugin failed; names it and the hook.
        """
        return cast("KVWriter", self._kv(subpool, ids)[0])

    def conv(self, subpool: SubPool) -> CausalConv1d:
        """The conv operations of a sub-pool; bind once and keep them, because ``prepare`` gives them the weights.

        Raises:
            ArgumentError: the sub-pool lies on another device.
            LayoutError: it keeps state of the other kind.
            PluginBroken: a plugin failed; names it and the hook.
        """
        request = CausalConv1dRequest(self._own(subpool, "slots"), self.device)
        return cast("CausalConv1d", self._bound("statehal_causal_conv1d", "conv", request))

    def describe(self, pool: StatePool | None = None, ids: Mapping[str, IdSpace] | None = None) -> Description:
        """Who provides what; with a pool also for each of its sub-pools.

        Args:
            ids: by sub-pool, what is given to ``kv`` as ``ids``.

        Raises:
            ArgumentError: ``ids`` names no sub-pool of tokens of the pool.
            WrongIdSpace: as of ``kv``.
        """
        given = dict(ids or {})
        known = [] if pool is None else [name for name, sub in pool.subpools.items() if sub.spec.kind == "tokens"]
        if not given.keys() <= set(known):
            raise ArgumentError(f"ids are given for {sorted(given)}: expected sub-pools of tokens, of {known}")
        translated: dict[str, str] = {}
        methods = {f"memory.{name}": provider for name, provider in cast("BoundMethods", self.memory).providers.items()}
        layouts = {}
        for name, sub in pool.subpools.items() if pool is not None else ():
            layouts[name] = self._layout(sub.spec, sub.page_size)[0]
            if sub.spec.kind == "tokens":
                label, (bound, composed) = "kv", self._kv(sub, given.get(name))
            else:
                label, bound, composed = "conv", cast("BoundMethods", self.conv(sub)), False
            methods |= {f"{name}: {label}.{method}": provider for method, provider in bound.providers.items()}
            if composed:
                translated[f"{name}: {label}"] = methods["memory.translate"]
        details = self.selection.probe.details
        return Description(self.device, self.backend, self.selection.reason, layouts, methods, translated, details)

    def _kv(self, subpool: SubPool, ids: IdSpace | None) -> tuple[BoundMethods, bool]:
        """The writer, and whether translation was composed with it."""
        sub = self._own(subpool, "tokens")
        if ids is not None and not isinstance(ids, IdSpace):
            raise ArgumentError(
                f"ids is a {type(ids).__name__}: expected a space, such as pool[{sub.name!r}].space('virtual')"
            )
        hook = "statehal_fused_kv_write"
        try:
            return self._bound(hook, "kv", KVWriteRequest(sub, self.device, ids)), False
        except WrongIdSpace:
            if ids is None or not ids.same(sub.space("virtual", "tokens")):
                raise
        bound = self._bound(hook, "kv", KVWriteRequest(sub, self.device))
        return wrapped(bound, TranslatingKVWriter(cast("KVWriter", bound), sub), self.memory), True

    def _layout(self, spec: Spec, page_size: int) -> tuple[str, PoolLayout]:
        hook = "statehal_conv_state_layout" if spec.kind == "slots" else "statehal_pool_layout"
        return layout_from(self.registry.providers(hook, self.backend), spec, page_size, self.device)

    def _bound(self, hook: str, label: str, request: KVWriteRequest | CausalConv1dRequest) -> BoundMethods:
        bound, sub = self._merge(hook, label, request), request.subpool
        if self.check:
            checked: Any = CheckedKVWriter if sub.spec.kind == "tokens" else CheckedCausalConv1d
            bound = wrapped(bound, checked(bound, sub))
        return compile_safe(bound, sub) if self.compile_safe else bound

    def _merge(self, hook: str, label: str, request: object) -> BoundMethods:
        # views made in inference mode could not be written outside it
        with torch.inference_mode(False):
            return merge(hook, label, self.registry.providers(hook, self.backend), request, trace.current())

    def _own(self, subpool: SubPool, kind: str) -> SubPool:
        # "cuda" and "cuda:0" may be one device: what torch makes of the name counts
        here = torch.empty(0, device=self.device).device
        if not isinstance(subpool, SubPool) or subpool.buffer.device != here:
            got = f"one on {subpool.buffer.device}" if isinstance(subpool, SubPool) else type(subpool).__name__
            raise ArgumentError(f"expected a sub-pool on {self.device}, such as pool['full']: got {got}")
        if subpool.spec.kind != kind:
            other = "conv" if kind == "tokens" else "kv"
            raise LayoutError(
                f"sub-pool {subpool.name!r} keeps {subpool.spec.kind}, not {kind} "
                f"(fix: use {other}(pool[{subpool.name!r}]))"
            )
        return subpool
