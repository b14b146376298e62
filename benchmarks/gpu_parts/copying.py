"""The copies that operations are compared with: a plain Triton kernel, and torch's ``copy_``."""

from typing import Any

import torch
import triton
import triton.language as tl

from gpu_parts.clock import DeviceClock, HostClock
from gpu_parts.machine import Place

BLOCKS = (1024, 4096, 16384)
"""Four-byte elements a program, tried in turn."""

LARGE = 2**30
"""Bytes that the copy which measures the device reads and writes, together."""


@triton.jit  # type: ignore[untyped-decorator]
def copy_words(source_ptr, target_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Copy ``count`` four-byte words, 16 bytes a thread and access."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    tl.store(target_ptr + places, tl.load(source_ptr + places, mask=mask), mask=mask)


class Copies:
    """Times of copies that read and write together a number of bytes, by number; each is measured once.

    Attributes:
        block: the fastest of ``BLOCKS`` for a large copy.
    """

    def __init__(self, place: Place, clock: DeviceClock | HostClock) -> None:
        self._place = place
        self._clock = clock
        self._known: dict[int, dict[str, float]] = {}
        self.block = BLOCKS[0]

    def calibrate(self) -> dict[str, Any]:
        """Choose the block, and say what bandwidth a large copy reaches."""
        nbytes = LARGE if self._place.l2_bytes else 2**14
        by_block = {block: self._triton_us(nbytes, block) for block in BLOCKS}
        self.block = min(by_block, key=lambda block: by_block[block])
        times = {"triton": by_block[self.block], "copy_": self._torch_us(nbytes)}
        self._known[nbytes] = times
        return {
            "nbytes": nbytes,
            "sets": self._place.sets(nbytes),
            "triton_us_by_block": by_block,
            "block": self.block,
            "us": times,
            "gb_per_s": {name: nbytes / us / 1e3 for name, us in times.items()},
        }

    def us(self, nbytes: int) -> float:
        """Microseconds of the faster copy."""
        if nbytes not in self._known:
            self._known[nbytes] = {"triton": self._triton_us(nbytes, self.block), "copy_": self._torch_us(nbytes)}
        return min(self._known[nbytes].values())

    def _pairs(self, nbytes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        words = -(-nbytes // 128) * 16  # masks of 16 words are whole, so that accesses stay 16 bytes
        both = torch.zeros((self._place.sets(nbytes), 2, words), dtype=torch.int32, device=self._place.device)
        return [(source, target) for source, target in both]

    def _triton_us(self, nbytes: int, block: int) -> float:
        def call(source: torch.Tensor, target: torch.Tensor) -> None:
            copy_words[(triton.cdiv(source.numel(), block),)](source, target, source.numel(), BLOCK=block, num_warps=8)

        return self._time([lambda pair=pair: call(*pair) for pair in self._pairs(nbytes)])

    def _torch_us(self, nbytes: int) -> float:
        return self._time([lambda pair=pair: pair[1].copy_(pair[0]) for pair in self._pairs(nbytes)])

    def _time(self, calls: Any) -> float:
        graph = self._clock.graph_us(calls)
        return self._clock.eager_us(calls) if graph is None else graph


def line(copy: dict[str, Any]) -> str:
    """What a large copy reached."""
    rates = ", ".join(f"{name} {rate:.0f} GB/s" for name, rate in copy["gb_per_s"].items())
    return f"copy of {copy['nbytes']} bytes read and written: {rates} ({copy['block']} words a program)"
