"""The operators that store K and V rows in dense pages, behind one call."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from statehal.errors import Unsupported
from statehal_ascend_npu.operators.schema import find

KNOWN = {
    "scatter_pa_kv_cache": (
        "npu::npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
        "Tensor slot_mapping, *, Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, "
        'Tensor? seq_lens=None, str? cache_mode="PA_NZ") -> ()'
    ),
    "reshape_and_cache": (
        "atb::_npu_reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
        "Tensor slot_indices) -> ()"
    ),
    "scatter_nd_update": "npu::npu_scatter_nd_update_(Tensor(a!) input, Tensor indices, Tensor updates) -> Tensor(a!)",
}
"""Schemas by kind, best first."""

HALVES = (torch.float16, torch.bfloat16)

TAKES: Mapping[str, tuple[torch.dtype, ...]] = {
    "scatter_pa_kv_cache": HALVES,
    "reshape_and_cache": HALVES,
    "scatter_nd_update": (*HALVES, torch.float32),
}
"""Dtypes that an operator stores."""

Pair = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]
"""Stores ``key, value`` into ``key_cache, value_cache`` at ``slots``."""

Single = Callable[[Tensor, Tensor, Tensor], None]
"""Stores ``rows`` into ``cache`` at ``slots``."""


def pair(dtype: torch.dtype, *, fractal: bool) -> Pair | None:
    """What stores K and V, of equal pages, in one launch; ``None`` where no such operator takes the dtype.

    Caches are ``[pages, page_size, heads, dim]``; ``fractal`` ones, of the NZ format, ``[pages, heads*dim/x,
    page_size, x]`` with ``x = 32 // itemsize``. Rows are ``[tokens, heads, dim]``, contiguous; slots int32
    ``[tokens]``.

    Raises:
        Unsupported: an operator has a schema that is not known.
    """
    call = _usable("scatter_pa_kv_cache", dtype)
    if call is not None:
        mode = "PA_NZ" if fractal else "Norm"

        def scatter(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
            call(
                key=key, value=value, key_cache=key_cache, value_cache=value_cache, slot_mapping=slots, cache_mode=mode
            )

        return scatter
    other = None if fractal else _usable("reshape_and_cache", dtype)
    if other is None:
        return None

    def reshape(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
        other(key=key, value=value, key_cache=key_cache, value_cache=value_cache, slot_indices=slots)

    return reshape


def single(dtype: torch.dtype) -> Single | None:
    """What stores the rows of one field that is not fractal; ``None`` where no operator takes the dtype.

    The cache is ``[pages, page_size, *row]``, rows ``[tokens, *row]``, slots int32 ``[tokens]``.

    Raises:
        Unsupported: the operator has a schema that is not known.
    """
    call = _usable("scatter_nd_update", dtype)
    if call is None:
        return None

    def update(rows: Tensor, cache: Tensor, slots: Tensor) -> None:
        call(input=cache.flatten(0, 1), indices=slots[:, None], updates=rows)

    return update


def described() -> str:
    """For ``statehal doctor``."""
    found = []
    for kind, text in KNOWN.items():
        try:
            one = find({kind: text})
        except Unsupported as error:
            return f"refused: {error}"
        found += [] if one is None else [str(one.call._schema.name)]
    return ", ".join(found) or "torch operations: no operator is registered"


def _usable(kind: str, dtype: torch.dtype) -> Any:
    found = find({kind: KNOWN[kind]})
    return found.call if found is not None and dtype in TAKES[kind] else None
