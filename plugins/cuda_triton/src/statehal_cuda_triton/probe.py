"""Whether a device is an NVIDIA GPU that the kernels run on."""

from statehal.hookspecs import Probe

OLDEST = (8, 0)
"""The first compute capability with bfloat16."""


def probe(device: str) -> Probe:
    """Ready on an NVIDIA GPU of capability 8.0 or later, and on the CPU where Triton interprets kernels."""
    try:
        import torch
        import triton
    except ImportError as error:
        return Probe("broken", f"{error.name} does not import: {error}", "install torch and triton")
    found = {"torch": torch.__version__, "triton": triton.__version__}
    kind = torch.device(device).type
    if triton.knobs.runtime.interpret:
        if kind == "cpu":
            return Probe("ready", details=found | {"kernels": "interpreted on the host, TRITON_INTERPRET=1"})
        return Probe("unavailable", f"TRITON_INTERPRET=1 interprets kernels on the host, not on {device!r}", "unset it")
    if kind != "cuda":
        return Probe("unavailable", f"it runs on NVIDIA GPUs, not on {device!r}", "name a device of type cuda")
    if torch.version.hip is not None:
        return Probe("unavailable", f"this torch is built for ROCm {torch.version.hip}", "use the backend 'hip'")
    if torch.version.cuda is None:
        return Probe("unavailable", "this torch is built without CUDA", "install a CUDA build of torch")
    found["cuda"] = torch.version.cuda
    try:
        properties = torch.cuda.get_device_properties(device)
    except (RuntimeError, AssertionError) as error:
        fix = "check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES"
        return Probe("unavailable", f"no such GPU: {str(error).splitlines()[0]}", fix, found)
    found |= {"gpu": properties.name, "capability": f"{properties.major}.{properties.minor}", "driver": driver()}
    if (properties.major, properties.minor) < OLDEST:
        reason = f"{properties.name} has compute capability {found['capability']}"
        return Probe("unavailable", reason, f"use a GPU of {OLDEST[0]}.{OLDEST[1]} or later", found)
    return Probe("ready", details=found)


def driver() -> str:
    """The driver's CUDA version, such as ``12.8``, or ``unknown``."""
    import torch

    ask = getattr(torch._C, "_cuda_getDriverVersion", None)
    if ask is None:
        return "unknown"
    number = int(ask())
    return f"{number // 1000}.{number % 1000 // 10}"
