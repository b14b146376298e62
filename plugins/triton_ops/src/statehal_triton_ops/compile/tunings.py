"""Every tuning entry that kernels are compiled with, by family of targets; the first is what most rows take.

Programs of the defaults are sized for warps of 32 threads. Where a wave has 64, half as many leave each thread as much
to move. Plugins add their tables through entry points of the group ``statehal_triton_ops.tunings``: each names a
function that returns pairs of ``Target.family`` and a ``KVTuning`` or ``ConvTuning``.
"""

from functools import cache
from importlib.metadata import entry_points

from statehal_triton_ops.conv import ConvTuning
from statehal_triton_ops.tuning import KVTuning

GROUP = "statehal_triton_ops.tunings"

_KV = {"cuda80": KVTuning(), "cuda": KVTuning(fp8_by_ptx=True), "hip64": KVTuning(num_warps=2), "hip32": KVTuning()}
_CONV = {"cuda80": ConvTuning(), "cuda": ConvTuning(), "hip64": ConvTuning(lanes=64, warps=1), "hip32": ConvTuning()}


def kv_tunings(family: str) -> tuple[KVTuning, ...]:
    """The default of a family, then what plugins add."""
    added = [one for name, one in _added() if name == family and isinstance(one, KVTuning)]
    return tuple(dict.fromkeys((_KV[family], *added)))


def conv_tunings(family: str) -> tuple[ConvTuning, ...]:
    """As ``kv_tunings``."""
    added = [one for name, one in _added() if name == family and isinstance(one, ConvTuning)]
    return tuple(dict.fromkeys((_CONV[family], *added)))


@cache
def _added() -> tuple[tuple[str, KVTuning | ConvTuning], ...]:
    return tuple(pair for entry in sorted(entry_points(group=GROUP)) for pair in entry.load()())
