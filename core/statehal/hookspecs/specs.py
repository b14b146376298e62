"""Every hook of the contract: signature, meaning, and who calls it when.

A plugin is a module or an object that implements some of them with ``statehal.hookspecs.hookimpl``. One that implements
``statehal_backend_info`` is a backend; any other overrides what the chosen backend provides. Hooks are called when a
host binds, never on the hot path; the methods of what they return are.

Where several plugins answer, the order is: overriding plugins by name, the chosen backend, the reference; the other
backends are not asked. A plugin that answers ``None`` leaves the question to the next.
"""

from typing import TYPE_CHECKING, Protocol

from statehal.hookspecs.markers import hookspec

if TYPE_CHECKING:
    from statehal.hookspecs.causal_conv1d import CausalConv1d
    from statehal.hookspecs.kv_writer import KVWriter
    from statehal.hookspecs.memory_ops import MemoryOps
    from statehal.hookspecs.requests import (
        CausalConv1dRequest,
        ConvStateLayoutRequest,
        KVWriteRequest,
        MemoryOpsRequest,
        PoolLayoutRequest,
    )
    from statehal.hookspecs.types import BackendInfo, Probe
    from statehal.layout import ConvStateLayout, PoolLayout


class HookSpecs(Protocol):
    """The hooks; a plugin implements those that it has an answer to."""

    @hookspec
    def statehal_backend_info(self) -> "BackendInfo":
        """Say who the backend is.

        Called once, at discovery. It must import no vendor library and touch no device; its ``name`` must be the name
        of the entry point.
        """
        ...

    @hookspec
    def statehal_probe(self, device: str) -> "Probe":
        """Say whether the backend can run on ``device``, such as ``"cuda:0"`` or ``"cuda"``.

        Every backend implements it. Called at selection and by ``statehal doctor``, on any device. It may import what
        it needs; what it raises is recorded as ``broken``.
        """
        ...

    @hookspec
    def statehal_pool_layout(self, request: "PoolLayoutRequest") -> "PoolLayout | None":
        """Give the tight ``PoolLayout`` and the address forms that this hardware wants for ``request.spec``.

        Called once a spec when a plan is made. No page is padded here: only the planner widens ``page_stride``. The
        first answer counts.
        """
        ...

    @hookspec
    def statehal_conv_state_layout(self, request: "ConvStateLayoutRequest") -> "ConvStateLayout | None":
        """Give window order, channel padding and commit protocol; the conv sub-pool's fields are built from them.

        Called once a spec when a plan is made. The first answer counts.
        """
        ...

    @hookspec
    def statehal_fused_kv_write(self, request: "KVWriteRequest") -> "KVWriter | None":
        """Return an object with some or all methods of ``KVWriter`` for ``request.subpool``.

        Called when a host binds a sub-pool, and by ``describe``. Answers are merged method by method: the first
        provider that has a method (not ``None``) gives it.
        """
        ...

    @hookspec
    def statehal_causal_conv1d(self, request: "CausalConv1dRequest") -> "CausalConv1d | None":
        """Return an object with some or all methods of ``CausalConv1d`` for ``request.subpool``; merged by method."""
        ...

    @hookspec
    def statehal_memory_ops(self, request: "MemoryOpsRequest") -> "MemoryOps | None":
        """Return an object with some or all methods of ``MemoryOps`` for ``request.device``; merged by method."""
        ...

    @hookspec(firstresult=True)
    def statehal_choose_backend(self, device: str, candidates: "tuple[BackendInfo, ...]") -> str | None:
        """Name the backend for ``device``, or leave it to priority by answering ``None``.

        Only overriding plugins are asked, and only where neither the program nor ``STATEHAL_BACKEND`` names one.
        ``candidates`` are the ready backends that serve this type of device, highest priority first. Any installed
        backend may be named; one that is not ready is an error.
        """
        ...
