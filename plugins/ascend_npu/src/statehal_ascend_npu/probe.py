"""Whether a device is an Ascend NPU that the operators run on: CANN is looked for before anything is imported."""

import importlib
import importlib.metadata
from pathlib import Path

from statehal.hookspecs import Probe
from statehal_ascend_npu.cann import look
from statehal_ascend_npu.variables import OPERATORS

TORCH_NPU = "torch_npu"
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD=0"


def probe(device: str, root: Path = Path("/")) -> Probe:
    """Ready on an NPU with CANN and torch_npu, and on the host where ``STATEHAL_ASCEND_NPU_OPERATORS`` names a module.

    Args:
        device: such as ``"npu:0"``.
        root: where the file system begins.
    """
    kind = device.split(":")[0]
    module = OPERATORS.text()
    if module and kind == "cpu":
        return _on_the_host(module)
    if kind != "npu":
        return Probe("unavailable", f"it runs on Ascend NPUs, not on {device!r}", "name a device of type npu")
    here = _on_npus(device, root)
    if here.state == "ready" or not module:
        return here
    reason = f"{here.reason}; for tests, 'cpu' has the operators of {module}"
    return Probe(here.state, reason, here.fix, here.details)


def _on_npus(device: str, root: Path) -> Probe:
    found = look(root=root)
    details = {"CANN": found.home or "not found", "chips": ", ".join(found.chips) or "none"}
    version = installed(TORCH_NPU)
    details[TORCH_NPU] = version or "not installed"
    # without CANN torch_npu breaks the very import of torch, unless its autoloading is off
    warning = f"; until then set {AUTOLOAD}, because torch_npu breaks 'import torch' without CANN" if version else ""
    if found.missing:
        reason = f"CANN is not installed: {', '.join(found.missing)} not found in {', '.join(found.searched)}"
        fix = f"install the CANN toolkit and source its set_env.sh{warning}"
        return Probe("unavailable", reason, fix, details)
    if not found.chips:
        reason = "no Ascend chip: there is no /dev/davinci0"
        fix = "install the Ascend driver, and hand the device nodes to the container"
        return Probe("unavailable", reason, fix, details)
    if not version:
        # a build of torch, such as 2.13.0+cpu, is no version that torch_npu has
        release = installed("torch").partition("+")[0]
        fix = "install the torch_npu of this torch: pip install torch_npu" + (f"=={release}" if release else "")
        return Probe("unavailable", "torch_npu is not installed", fix, details)
    return _on_a_chip(device, details)


def installed(distribution: str) -> str:
    """Version of a distribution, which is not imported; empty where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _on_a_chip(device: str, details: dict[str, str]) -> Probe:
    try:
        importlib.import_module(TORCH_NPU)
        import torch

        npu = torch.get_device_module("npu")
        count, index = npu.device_count(), torch.device(device).index or 0
    except Exception as error:
        return Probe("broken", f"torch_npu does not import: {_line(error)}", "match torch_npu, torch and CANN", details)
    if index >= count:
        reason = f"no such NPU: there are {count}"
        return Probe("unavailable", reason, "check npu-smi info, and ASCEND_RT_VISIBLE_DEVICES", details)
    details |= {"npu": str(npu.get_device_name(index))}
    return Probe("ready", details=details | operators_found())


def _on_the_host(module: str) -> Probe:
    details = {"operators": f"registered for the host by {module}: {OPERATORS.name} is set"}
    try:
        importlib.import_module(module)
    except Exception as error:
        reason = f"{OPERATORS.name}={module!r} does not import: {_line(error)}"
        return Probe("broken", reason, "name a module that registers operators, or unset it", details)
    return Probe("ready", details=details | operators_found())


def operators_found() -> dict[str, str]:
    """Which operator does each job here, for ``statehal doctor``."""
    from statehal_ascend_npu.operators import conv1d, kv
    from statehal_ascend_npu.triton_support import described

    return {"causal_conv1d": conv1d.described(), "KV writes": kv.described(), "commits": described()}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
