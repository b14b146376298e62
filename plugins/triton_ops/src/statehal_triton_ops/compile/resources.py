"""Registers, spills, scratch and shared memory of a compiled kernel, and the occupancy that follows."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from statehal_triton_ops.compile.build import Compiled
from statehal_triton_ops.compile.targets import Target

REGISTERS = 1 << 16  # of a multiprocessor, on all capabilities from 8.0 to 12.0
REGISTER_UNIT = 256  # registers are given to a warp in multiples of this
SHARED_RESERVED = 1 << 10  # bytes of shared memory that each program takes beside its own


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of a chip.

    Attributes:
        registers: a thread (vector registers, with AMD).
        scalar_registers: a wave; 0 with NVIDIA.
        spills: vector registers kept in memory (AMD), or loads and stores of local memory (NVIDIA).
        scalar_spills: scalar registers kept in lanes of vector registers (AMD); in memory they would be scratch.
        scratch_bytes: local memory a thread, of any use.
        shared_bytes: a program.
        occupancy: warps that run at once, of those that a multiprocessor or SIMD unit could hold.
    """

    registers: int
    scalar_registers: int
    spills: int
    scalar_spills: int
    scratch_bytes: int
    shared_bytes: int
    occupancy: float


def resources(compiled: Compiled, target: Target) -> Resources:
    """Read them off the binary or the assembly."""
    return _cuda(compiled, target) if target.backend == "cuda" else _hip(compiled, target)


def occupancy(target: Target, registers: int, shared_bytes: int, threads: int) -> float:
    """Warps that a multiprocessor runs at once, of those it could hold, by NVIDIA's rules.

    Examples:
        >>> from statehal_triton_ops.compile.targets import TARGETS
        >>> occupancy(TARGETS["sm90"], registers=32, shared_bytes=0, threads=128)
        1.0
        >>> occupancy(TARGETS["sm90"], registers=33, shared_bytes=0, threads=128)  # 40 a thread, 12 programs
        0.75
        >>> occupancy(TARGETS["sm120"], registers=32, shared_bytes=49 << 10, threads=128)  # 2 programs of 50 KiB
        0.16666666666666666
    """
    warps = threads // target.warp_size
    per_warp = -(-max(registers, 1) * target.warp_size // REGISTER_UNIT) * REGISTER_UNIT
    # warps are spread over four partitions, each with a quarter of the registers
    by_registers = 4 * (REGISTERS // 4 // per_warp) // warps
    by_shared = target.shared_bytes // (shared_bytes + SHARED_RESERVED)
    programs = min(target.max_blocks, target.max_warps // warps, by_registers, by_shared)
    return programs * warps / target.max_warps


def _cuda(compiled: Compiled, target: Target) -> Resources:
    with tempfile.TemporaryDirectory(prefix="statehal-compile-") as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.binary)
        usage = _tool("cuobjdump", "-res-usage", str(cubin))
        registers, stack, local = (_number(rf"\b{name}:(\d+)", usage) for name in ("REG", "STACK", "LOCAL"))
        spills = 0
        if stack or local:
            spills = len(re.findall(r"\b(?:LDL|STL)\b", _tool("nvdisasm", "-c", str(cubin))))
    shared = compiled.shared_bytes
    used = occupancy(target, registers, shared, compiled.threads)
    return Resources(registers, 0, spills, 0, stack + local, shared, used)


def _hip(compiled: Compiled, target: Target) -> Resources:
    text = compiled.assembly
    return Resources(
        _number(r"\.vgpr_count:\s+(\d+)", text),
        _number(r"\.sgpr_count:\s+(\d+)", text),
        _number(r"\.vgpr_spill_count:\s+(\d+)", text),
        _number(r"\.sgpr_spill_count:\s+(\d+)", text),
        _number(r"\.private_segment_fixed_size:\s+(\d+)", text),
        compiled.shared_bytes,
        _number(r"; Occupancy: (\d+)", text) / target.max_warps,
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise LookupError(f"{pattern!r} is nowhere in what the compiler wrote")
    return int(found[1])


def _tool(name: str, *arguments: str) -> str:
    """Run one of the NVIDIA tools that come with Triton."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], check=True, capture_output=True, text=True).stdout
