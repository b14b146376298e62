"""The bytes of a pool: on a host in huge pages, where the system gives them."""

import ctypes
import logging
import mmap
import os

import torch

HUGE_PAGES = 4 << 20
"""From so many bytes on, a pool is worth huge pages: of 2 MiB, they start at multiples of their size."""

logger = logging.getLogger("statehal")


def zeroed_bytes(nbytes: int, device: torch.device) -> torch.Tensor:
    """Zeros, uint8 ``[nbytes]``, for rows that are read and written at random places.

    On a host the system is asked for huge pages (transparent ones, by ``madvise``), because with ordinary ones each
    row costs a walk of the page table: a third of a write of rows of 2 KiB. A system that has none leaves all as it is,
    and a debug message says why.
    """
    made = torch.empty(nbytes, dtype=torch.uint8, device=device)
    if made.device.type == "cpu" and type(made) is torch.Tensor and nbytes >= HUGE_PAGES:
        start, end = made.data_ptr() + -made.data_ptr() % mmap.PAGESIZE, made.data_ptr() + nbytes
        _ask_for_huge_pages(start, (end - start) // mmap.PAGESIZE * mmap.PAGESIZE)
    return made.zero_()  # the first touch of the memory, which decides what its pages are


def _ask_for_huge_pages(start: int, nbytes: int) -> None:
    advice = getattr(mmap, "MADV_HUGEPAGE", None)  # Python's own method of this name advises its own mappings alone
    if advice is None:
        logger.debug("no huge pages for a pool of %d bytes: this system's madvise knows none", nbytes)
        return
    if _madvise(start, nbytes, advice):
        reason = os.strerror(ctypes.get_errno())
        logger.debug("no huge pages for a pool of %d bytes: madvise says: %s", nbytes, reason)


def _madvise(start: int, nbytes: int, advice: int) -> int:
    call = ctypes.CDLL(None, use_errno=True).madvise
    return int(call(ctypes.c_void_p(start), ctypes.c_size_t(nbytes), ctypes.c_int(advice)))
