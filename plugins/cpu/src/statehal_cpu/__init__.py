"""The backend for CPUs: C++ kernels on the addresses of a pool, chosen for the machine's instruction set.

Discovery imports this module in every process that uses statehal, so it imports neither torch nor the extension; hooks
do, when they are asked.
"""

from statehal.hookspecs import (
    CAPABILITIES,
    BackendInfo,
    CausalConv1dRequest,
    ConvStateLayoutRequest,
    KVWriteRequest,
    MemoryOpsRequest,
    PoolLayoutRequest,
    Probe,
    hookimpl,
)
from statehal.layout import ConvStateLayout, PoolLayout
from statehal_cpu.layouts import conv_layout, pool_layout
from statehal_cpu.probe import ISA, probe


@hookimpl
def statehal_backend_info() -> BackendInfo:
    return BackendInfo(
        name="cpu",
        device_types=frozenset({"cpu"}),
        priority=50,
        contract=(0, 1),
        capabilities=CAPABILITIES,
        description="CPUs, C++ kernels",
        variables=(ISA,),
    )


@hookimpl
def statehal_probe(device: str) -> Probe:
    return probe(device)


@hookimpl
def statehal_pool_layout(request: PoolLayoutRequest) -> PoolLayout:
    return pool_layout(request.spec, request.page_size)


@hookimpl
def statehal_conv_state_layout(request: ConvStateLayoutRequest) -> ConvStateLayout:
    return conv_layout(request.spec)


@hookimpl
def statehal_fused_kv_write(request: KVWriteRequest) -> object:
    from statehal_cpu.kv_writer import CpuKVWriter

    return CpuKVWriter(request)


@hookimpl
def statehal_causal_conv1d(request: CausalConv1dRequest) -> object:
    from statehal_cpu.causal_conv1d import CpuCausalConv1d, serves

    return CpuCausalConv1d(request) if serves(request.subpool) else None


@hookimpl
def statehal_memory_ops(request: MemoryOpsRequest) -> object:
    from statehal_cpu.memory_ops import CpuMemoryOps

    return CpuMemoryOps(request.device)
