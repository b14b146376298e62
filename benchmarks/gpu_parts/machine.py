"""Where a run takes place: versions, hardware, and how large its inputs are."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

import statehal
from statehal import Binding, SubPool
from statehal.testing import Target
from statehal.testing.evidence import LEVELS, level

BEYOND = 2
"""How many times the L2 cache the memories of a row take together, so that its bytes come from DRAM."""

MOST_SETS = 128
"""Memories of a row at most: calls of a few bytes stay within the cache, and their rows say so."""


@dataclass(frozen=True)
class Sizes:
    """Of the inputs; ``FULL`` is what goals are for."""

    tokens: int
    decode: int
    heads: int
    query_heads: int
    dim: int
    rank: int
    rope: int
    page_size: int
    ids: int
    table: tuple[int, int]
    pages: int
    channels: int
    conv_tokens: int
    sequences: int
    conv_decode: int
    verify: int
    verify_layers: int
    drafts: int


FULL = Sizes(
    tokens=4096, decode=256, heads=8, query_heads=32, dim=128, rank=512, rope=64, page_size=16, ids=65536,
    table=(256, 512), pages=256, channels=8192, conv_tokens=8192, sequences=64, conv_decode=256, verify=64,
    verify_layers=8, drafts=8,
)  # fmt: skip
TINY = Sizes(
    tokens=9, decode=3, heads=2, query_heads=4, dim=16, rank=32, rope=16, page_size=4, ids=12, table=(2, 3), pages=2,
    channels=64, conv_tokens=7, sequences=3, conv_decode=3, verify=2, verify_layers=2, drafts=3,
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where operations are bound and how large they are.

    Attributes:
        single: one memory a row, whatever the cache: where nothing is timed.
    """

    hal: Binding
    sizes: Sizes
    l2_bytes: int
    single: bool = False

    @property
    def device(self) -> str:
        """Of the binding."""
        return self.hal.device

    def sets(self, nbytes: int) -> int:
        """How many memories a call of so many bytes rotates over."""
        return 1 if self.single else max(1, min(MOST_SETS, -(-2 * BEYOND * self.l2_bytes // nbytes)))

    def beyond(self, nbytes: int, sets: int) -> bool:
        """Whether so many memories are well past the cache."""
        return bool(self.l2_bytes) and nbytes * sets >= BEYOND * self.l2_bytes

    def values(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Normal values."""
        return torch.randn(shape, dtype=torch.float32 if dtype.itemsize == 1 else dtype, device=self.device).to(dtype)

    def shuffled(self, count: int) -> torch.Tensor:
        """``0`` to ``count - 1`` in an order that is the same at every run."""
        return torch.randperm(count, generator=torch.Generator().manual_seed(count)).to(self.device)


def fill(sub: SubPool) -> torch.Tensor:
    """Put numbers into every page but the sink; returns these bytes."""
    used = sub.buffer[sub.layout.origin + sub.layout.page_bytes : sub.layout.total_bytes]
    used.random_(0, 64)
    return used


def l2_bytes(device: str) -> int:
    """Of the GPU's cache; 0 on the CPU."""
    if torch.device(device).type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def about(hal: Binding) -> dict[str, Any]:
    """Machine, versions, and how strong the evidence is."""
    evidence = level(Target(hal.backend, hal.device))
    found = {
        "evidence": evidence,
        "evidence_means": LEVELS[evidence],
        "device": hal.device,
        "backend": hal.backend,
        "statehal": statehal.__version__,
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "probe": dict(hal.selection.probe.details),
        "l2_bytes": l2_bytes(hal.device),
    }
    if torch.device(hal.device).type != "cuda":
        return found | {"hardware": platform.processor() or platform.machine(), "driver": None}
    properties = torch.cuda.get_device_properties(hal.device)
    return found | {
        "hardware": properties.name,
        "driver": driver(),
        "capability": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }


def driver() -> str | None:
    """The version of NVIDIA's kernel module, where it can be read."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return None
    return next((word for word in words if word.count(".") and word.replace(".", "").isdigit()), None)
