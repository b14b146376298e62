"""The backend for Ascend NPUs: CANN operators over dense views of the pool.

Discovery imports this module in every process that uses statehal, so it imports neither torch nor torch_npu; hooks do,
when they are asked, and only after CANN was found.
"""

from statehal.hookspecs import (
    BackendInfo,
    CausalConv1dRequest,
    ConvStateLayoutRequest,
    KVWriteRequest,
    PoolLayoutRequest,
    Probe,
    hookimpl,
)
from statehal.layout import ConvStateLayout, PoolLayout
from statehal_ascend_npu.layouts import STORES, WINDOWS, conv_layout, pool_layout, serves_conv, serves_kv
from statehal_ascend_npu.probe import probe
from statehal_ascend_npu.variables import VARIABLES


@hookimpl
def statehal_backend_info() -> BackendInfo:
    return BackendInfo(
        name="ascend_npu",
        device_types=frozenset({"npu"}),
        priority=100,
        contract=(0, 1),
        capabilities=frozenset(
            [
                *(f"store:{dtype}" for dtype in STORES),
                *(f"window:{dtype}" for dtype in WINDOWS),
                *("snapshots", "trees", "tracking"),
            ]
        ),
        description="Ascend NPUs, CANN operators",
        variables=VARIABLES,
    )


@hookimpl
def statehal_probe(device: str) -> Probe:
    return probe(device)


@hookimpl
def statehal_pool_layout(request: PoolLayoutRequest) -> PoolLayout:
    return pool_layout(request.spec, request.page_size)


@hookimpl
def statehal_conv_state_layout(request: ConvStateLayoutRequest) -> ConvStateLayout | None:
    return conv_layout(request.spec)


@hookimpl
def statehal_fused_kv_write(request: KVWriteRequest) -> object:
    if not serves_kv(request.subpool.spec, request.subpool.layout):
        return None  # left to the reference, and listed
    from statehal_ascend_npu.kv_writer import AscendKVWriter

    return AscendKVWriter(request)


@hookimpl
def statehal_causal_conv1d(request: CausalConv1dRequest) -> object:
    if not serves_conv(request.subpool.spec, request.subpool.layout):
        return None  # left to the reference, and listed
    from statehal_ascend_npu.causal_conv1d import AscendCausalConv1d

    return AscendCausalConv1d(request)
