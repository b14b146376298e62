"""A backend for statehal: who it is, whether it is ready, the layouts it wants, and who does which operation.

Discovery imports this module in every process that uses statehal, whichever backend is chosen there. So it imports
neither torch nor a vendor's library; a hook does, when it is asked.
"""

from statehal.hookspecs import (
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
from statehal.spec import Attention, ConvRecurrent

STORES = ("float32", "bfloat16", "float16")
"""Dtypes that ``write`` stores."""

WINDOWS = ("float32", "bfloat16", "float16")
"""Dtypes of conv windows."""

CONV = ConvStateLayout(window_order="channels_first", protocol="offset")
"""The window that the conv kernels are written for."""


@hookimpl
def statehal_backend_info() -> BackendInfo:
    return BackendInfo(
        name="acme",
        device_types=frozenset({"cpu"}),
        priority=-10,  # below the reference's 0: whoever installs this for a look does not get it unasked
        contract=(0, 1),
        capabilities=frozenset(
            [
                *(f"store:{dtype}" for dtype in STORES),
                *(f"window:{dtype}" for dtype in WINDOWS),
            ]
        ),
        description="an example, in plain torch",
    )


@hookimpl
def statehal_probe(device: str) -> Probe:
    if device.split(":")[0] != "cpu":
        return Probe("unavailable", f"it runs on the cpu, not on {device!r}", "name a device of type cpu")
    import torch

    return Probe("ready", details={"torch": torch.__version__})


@hookimpl
def statehal_pool_layout(request: PoolLayoutRequest) -> PoolLayout:
    # the page form for our kernels, the row form for hosts that read rows
    return page_major(request.spec, request.page_size, order="HND", forms=("page", "row"))


@hookimpl
def statehal_fused_kv_write(request: KVWriteRequest) -> object:
    spec, layout = request.subpool.spec, request.subpool.layout
    if not isinstance(spec, Attention) or spec.dtype not in STORES or spec.scales:
        return None  # the reference does it
    if any("page" not in layout.kinds(field.name) or len(field.token_shape) > 1 for field in layout.fields):
        return None  # an overriding plugin chose a layout that the kernels are not written for
    from statehal_acme.kv import AcmeKVWriter

    return AcmeKVWriter(request)


@hookimpl
def statehal_conv_state_layout(request: ConvStateLayoutRequest) -> ConvStateLayout | None:
    rings = any(extra.name == "replay" for extra in request.spec.extra)
    return None if rings else CONV  # a replay ring needs a window of the ring protocol


@hookimpl
def statehal_causal_conv1d(request: CausalConv1dRequest) -> object:
    spec, layout = request.subpool.spec, request.subpool.layout
    if not isinstance(spec, ConvRecurrent) or spec.dtype not in WINDOWS or layout.conv != CONV:
        return None
    from statehal_acme.conv import AcmeCausalConv1d

    return AcmeCausalConv1d(request)


@hookimpl
def statehal_memory_ops(request: MemoryOpsRequest) -> object:
    from statehal_acme.memory import AcmeMemoryOps

    return AcmeMemoryOps()
