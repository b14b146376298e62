"""Whether Triton kernels run on a device here: triton-ascend on NPUs, Triton's interpreter on the host."""

from functools import cache

import torch

from statehal.env import interpreted


@cache
def version() -> str:
    """Version of the Triton that is installed; empty where there is none."""
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


@cache
def targets() -> frozenset[str]:
    """Names of the backends that the installed Triton has."""
    if not version():
        return frozenset()
    from triton.backends import backends

    return frozenset(backends)


def has_kernels(device: torch.device) -> bool:
    """Whether the kernels of this package can be launched on tensors of that device."""
    if device.type == "cpu":
        return bool(version()) and interpreted()
    return "ascend" in targets()


def described() -> str:
    """For ``statehal doctor``."""
    if "ascend" in targets():
        return f"one Triton kernel, triton-ascend {version()}"
    if version() and interpreted():
        return f"one Triton kernel, interpreted on the host by Triton {version()}"
    return "torch operations: triton-ascend is not installed"
