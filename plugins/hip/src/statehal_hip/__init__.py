"""The backend for AMD GPUs: Triton kernels on page-major and x-packed pools.

Discovery imports this module in every process that uses statehal, so it imports neither torch nor triton; hooks do,
when they are asked.
"""

from statehal.env import TRITON_INTERPRET, interpreted
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
from statehal_hip.layouts import LAYOUT, conv_layout, pool_layout
from statehal_hip.probe import probe
from statehal_hip.targets import ARCH, target_of


@hookimpl
def statehal_backend_info() -> BackendInfo:
    # interpreted, it is for tests on the host, and nobody gets it unasked; cuda_triton has -100 there
    where, priority = ({"cuda", "cpu"}, -110) if interpreted() else ({"cuda"}, 100)
    return BackendInfo(
        name="hip",
        device_types=frozenset(where),
        priority=priority,
        contract=(0, 1),
        capabilities=CAPABILITIES,
        description="AMD GPUs, Triton kernels",
        variables=(LAYOUT, ARCH, TRITON_INTERPRET),
    )


@hookimpl
def statehal_probe(device: str) -> Probe:
    return probe(device)


@hookimpl
def statehal_pool_layout(request: PoolLayoutRequest) -> PoolLayout:
    from statehal_hip.fp8 import tell_foreign

    tell_foreign(request.spec, target_of(request.device))
    return pool_layout(request.spec, request.page_size)


@hookimpl
def statehal_conv_state_layout(request: ConvStateLayoutRequest) -> ConvStateLayout:
    return conv_layout(request.spec)


@hookimpl
def statehal_fused_kv_write(request: KVWriteRequest) -> object:
    from statehal.arguments import require_own_ids

    # an engine's fused write on AMD takes full-attention ids for window layers: here no writer is made for them
    require_own_ids(request)
    from statehal_hip.tuning import tuning
    from statehal_triton_ops.kv_writer import TritonKVWriter, serves

    return TritonKVWriter(request, tuning(request.device).kv) if serves(request.subpool.layout) else None


@hookimpl
def statehal_causal_conv1d(request: CausalConv1dRequest) -> object:
    from statehal_hip.tuning import tuning
    from statehal_triton_ops.causal_conv1d import TritonCausalConv1d, serves

    return TritonCausalConv1d(request, tuning(request.device).conv) if serves(request.subpool) else None


@hookimpl
def statehal_memory_ops(request: MemoryOpsRequest) -> object:
    from statehal_triton_ops.memory_ops import TritonMemoryOps

    return TritonMemoryOps(request.device)
