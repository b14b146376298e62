"""Every tuning entry that kernels are compiled with, by Triton's backend; the first is what most rows take.

Programs of the defaults are sized for warps of 32 threads. Where a wave has 64, half as many leave each thread as much
to move. Plugins add their tables through entry points of the group ``statehal_triton_ops.tunings``: each names a
function that returns pairs of a backend of Triton's and a ``KVTuning`` or ``ConvTuning``.
"""

from functools import cache
from importlib.metadata import entry_points

from statehal_triton_ops.conv import ConvTuning
from statehal_triton_ops.tuning import KVTuning

GROUP = "statehal_triton_ops.tunings"

_KV = {"cuda": KVTuning(), "hip": KVTuning(num_warps=2)}
_CONV = {"cuda": ConvTuning(), "hip": ConvTuning(lanes=64, warps=1)}


def kv_tunings(backend: str) -> tuple[KVTuning, ...]:
    """The default of a backend, then what plugins add."""
    added = [one for name, one in _added() if name == backend and isinstance(one, KVTuning)]
    return tuple(dict.fromkeys((_KV[backend], *added)))


def conv_tunings(backend: str) -> tuple[ConvTuning, ...]:
    """As ``kv_tunings``."""
    added = [one for name, one in _added() if name == backend and isinstance(one, ConvTuning)]
    return tuple(dict.fromkeys((_CONV[backend], *added)))


@cache
def _added() -> tuple[tuple[str, KVTuning | ConvTuning], ...]:
    return tuple(pair for entry in sorted(entry_points(group=GROUP)) for pair in entry.load()())
