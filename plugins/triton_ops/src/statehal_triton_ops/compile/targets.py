"""The chips that kernels are compiled for, and what of them bounds occupancy."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from statehal.errors import ArgumentError


@dataclass(frozen=True)
class Target:
    """A chip.

    Attributes:
        name: as on the command line: ``sm90``, ``gfx942``.
        backend: Triton's: ``cuda`` or ``hip``.
        arch: Triton's: a compute capability as an integer, or an AMD processor.
        warp_size: threads that run in step.
        max_warps: that a multiprocessor (of a SIMD unit, with AMD) holds.
        max_blocks: programs that a multiprocessor holds; 0 where the compiler states the occupancy itself.
        shared_bytes: shared memory of a multiprocessor; 0 as above.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    max_warps: int
    max_blocks: int = 0
    shared_bytes: int = 0

    @property
    def family(self) -> str:
        """Chips whose kernels are tuned alike.

        ``cuda80`` before NVIDIA's had an instruction for fp8, and ``cuda`` since; AMD's by the threads of a wave:
        ``hip64`` and ``hip32``.
        """
        if self.backend == "hip":
            return f"hip{self.warp_size}"
        return "cuda80" if self.arch == 80 else "cuda"

    def triton(self) -> Any:
        """It as Triton's ``GPUTarget``."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.backend, self.arch, self.warp_size)


# Limits: "Technical specifications per compute capability" of the CUDA C++ programming guide.
TARGETS = {
    target.name: target
    for target in (
        Target("sm80", "cuda", 80, 32, max_warps=64, max_blocks=32, shared_bytes=164 << 10),
        Target("sm90", "cuda", 90, 32, max_warps=64, max_blocks=32, shared_bytes=228 << 10),
        Target("sm100", "cuda", 100, 32, max_warps=64, max_blocks=32, shared_bytes=228 << 10),
        Target("sm120", "cuda", 120, 32, max_warps=48, max_blocks=24, shared_bytes=100 << 10),
        Target("gfx90a", "hip", "gfx90a", 64, max_warps=8),
        Target("gfx942", "hip", "gfx942", 64, max_warps=8),
        Target("gfx950", "hip", "gfx950", 64, max_warps=8),
        Target("gfx1100", "hip", "gfx1100", 32, max_warps=16),
        Target("gfx1201", "hip", "gfx1201", 32, max_warps=16),
    )
}


def named(names: Iterable[str]) -> tuple[Target, ...]:
    """The targets of these names, in the order of ``TARGETS``.

    Raises:
        ArgumentError: there is no such target.
    """
    wanted = set(names)
    unknown = sorted(wanted - set(TARGETS))
    if unknown:
        raise ArgumentError(f"no target {', '.join(map(repr, unknown))}: expected some of {', '.join(TARGETS)}")
    return tuple(target for name, target in TARGETS.items() if name in wanted)
