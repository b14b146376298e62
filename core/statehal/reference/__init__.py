"""The reference backend: the meaning of the contract in plain torch, on any torch device.

Found through the entry-point group ``statehal.backends`` like every other backend. It is chosen on its own only for the
CPU; on an accelerator it must be named. torch is imported when an operation is bound, not before.
"""

from statehal.hookspecs import (
    CAPABILITIES,
    IDS64,
    BackendInfo,
    CausalConv1dRequest,
    ConvStateLayoutRequest,
    KVWriteRequest,
    MemoryOpsRequest,
    PoolLayoutRequest,
    Probe,
    hookimpl,
)
from statehal.layout import ConvStateLayout, PoolLayout, page_major


@hookimpl
def statehal_backend_info() -> BackendInfo:
    return BackendInfo(
        name="reference",
        device_types=frozenset({"cpu"}),
        priority=0,
        contract=(0, 1),
        capabilities=CAPABILITIES - {IDS64},
        description="plain torch, on any device by name",
    )


@hookimpl
def statehal_probe(device: str) -> Probe:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        return Probe(
            "unavailable", f"torch cannot use {device!r}: {reason}", "install a build of torch for that device"
        )
    return Probe("ready", details={"torch": torch.__version__})


@hookimpl
def statehal_pool_layout(request: PoolLayoutRequest) -> PoolLayout:
    return page_major(request.spec, request.page_size)


@hookimpl
def statehal_conv_state_layout(request: ConvStateLayoutRequest) -> ConvStateLayout:
    return ConvStateLayout()


@hookimpl
def statehal_fused_kv_write(request: KVWriteRequest) -> object:
    from statehal.reference.kv_writer import ReferenceKVWriter

    return ReferenceKVWriter(request)


@hookimpl
def statehal_causal_conv1d(request: CausalConv1dRequest) -> object:
    from statehal.reference.causal_conv1d import ReferenceCausalConv1d

    return ReferenceCausalConv1d(request)


@hookimpl
def statehal_memory_ops(request: MemoryOpsRequest) -> object:
    from statehal.reference.memory_ops import ReferenceMemoryOps

    return ReferenceMemoryOps(request.device)
