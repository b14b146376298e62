"""Whether a device is an AMD GPU that the kernels run on."""

from pathlib import Path

from statehal.errors import EnvError, Unsupported
from statehal.hookspecs import Probe
from statehal_hip.targets import Target, properties, target_of

DRIVER = Path("/sys/module/amdgpu/version")
"""Where a driver that was installed beside the kernel's own says its version."""


def probe(device: str) -> Probe:
    """Ready on an AMD GPU like one of ``TARGETS``, and on the CPU where Triton interprets kernels."""
    try:
        import torch
        import triton
    except ImportError as error:
        return Probe("broken", f"{error.name} does not import: {error}", "install torch and triton")
    found = {"torch": torch.__version__, "triton": triton.__version__}
    kind = torch.device(device).type
    if triton.knobs.runtime.interpret:
        return _interpreted(device, kind, found)
    if kind != "cuda":
        return Probe("unavailable", f"it runs on AMD GPUs, not on {device!r}", "name a device of type cuda")
    if torch.version.hip is None:
        had = "without ROCm" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
        fix = "install a ROCm build of torch" + ("" if torch.version.cuda is None else ", or use 'cuda_triton'")
        return Probe("unavailable", f"torch.version.hip is None: this torch is built {had}", fix, found)
    found["rocm"] = torch.version.hip
    try:
        about = properties(device)
    except (RuntimeError, AssertionError) as error:
        fix = "check the driver with rocminfo, and HIP_VISIBLE_DEVICES"
        return Probe("unavailable", f"no such GPU: {str(error).splitlines()[0]}", fix, found)
    wave = about.warp_size
    found |= {"gpu": about.name, "processor": about.gcnArchName, "wave": str(wave), "driver": driver()}
    try:
        target = target_of(device)
    except EnvError as error:
        return Probe("broken", *_parts(error), found)
    except Unsupported as error:
        return Probe("unavailable", *_parts(error), found)
    if wave != target.wave:
        reason = f"{about.name} runs waves of {wave}, and the kernels for {target.name} are tuned for {target.wave}"
        return Probe("broken", reason, "report it with what statehal doctor prints", found)
    return Probe("ready", details=found | _facts(target))


def _interpreted(device: str, kind: str, found: dict[str, str]) -> Probe:
    if kind != "cpu":
        return Probe("unavailable", f"TRITON_INTERPRET=1 interprets kernels on the host, not on {device!r}", "unset it")
    try:
        target = target_of(device)
    except EnvError as error:
        return Probe("broken", *_parts(error), found)
    found["kernels"] = "interpreted on the host, TRITON_INTERPRET=1"
    return Probe("ready", details=found | _facts(target))


def _facts(target: Target) -> dict[str, str]:
    how = "of its instructions" if target.native else "by integers, it has no instructions for them"
    return {"target": target.name, "fp8": f"{', '.join(target.fp8)}: {how}"}


def _parts(error: Exception) -> tuple[str, str]:
    """The reason and the fix of an error's text."""
    reason, _, fix = str(error).partition(" (fix: ")
    return reason, fix.removesuffix(")")


def driver() -> str:
    """The version of the kernel's amdgpu module, or that it says none."""
    try:
        return DRIVER.read_text(encoding="ascii").strip()
    except OSError:
        return "the kernel's own"
