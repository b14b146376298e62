"""How kernels divide and do their work, which a plugin chooses by device."""

from dataclasses import dataclass, field

from statehal_triton_ops.conv.tuning import ConvTuning


@dataclass(frozen=True)
class KVTuning:
    """Of the KV writes.

    Attributes:
        tile: elements of K (and of V) that a program takes; a power of two.
        num_warps: warps a program.
        fp8_by_ptx: convert to ``float8_e4m3fn`` and ``float8_e5m2`` by an instruction that NVIDIA GPUs have from
            compute capability 8.9 on; else, and to other formats, by integer arithmetic. The bytes are the same.
    """

    tile: int = 2048
    num_warps: int = 4
    fp8_by_ptx: bool = False


@dataclass(frozen=True)
class Tuning:
    """Of all operations on one device."""

    kv: KVTuning = field(default_factory=KVTuning)
    conv: ConvTuning = field(default_factory=ConvTuning)
