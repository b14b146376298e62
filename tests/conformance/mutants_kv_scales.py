"""KV methods that take what is no scale, one that nothing is divided by, or rows that cannot be quantised."""

from typing import Any

import torch

from conformance.kv_bends import bent
from conformance.mutant import Mutant

PLAIN, EIGHT = "kv_arguments/plain_storage_takes_no_scale", "kv_arguments/what_cannot_be_quantised_is_refused"


def _no_scale(scale: Any, given: Any, spec: Any) -> Any:
    return scale if getattr(torch, spec.dtype).itemsize == 1 else None


def _any_number(scale: Any, given: Any, spec: Any) -> Any:
    return scale if isinstance(scale, torch.Tensor) or 0 < scale < float("inf") else 1.0


def _first_element(scale: Any, given: Any, spec: Any) -> Any:
    return scale.reshape(-1)[:1] if isinstance(scale, torch.Tensor) and scale.numel() else scale


def _narrowed(rows: Any, given: Any, spec: Any) -> Any:
    return rows.float() if rows.dtype == torch.float64 else rows


def _widened(rows: Any, given: Any, spec: Any) -> Any:
    return rows.float() if rows.dtype.itemsize == 1 and rows.dtype == getattr(torch, spec.dtype) else rows


MUTANTS = [
    *(
        Mutant(f"{name} ignores {scale} of plain storage", PLAIN, bent(name, **{scale: _no_scale}))
        for name, scale in (("write", "k_scale"), ("rope_write", "v_scale"), ("write_latent", "scale"))
    ),
    *(
        Mutant(f"{name} takes a {scale} of 0 for none", EIGHT, bent(name, **{scale: _any_number}))
        for name, scale in (("write", "v_scale"), ("rope_write", "k_scale"), ("write_latent", "scale"))
    ),
    Mutant("of several scales the first one is taken", EIGHT, bent("write", k_scale=_first_element)),
    Mutant("rows of float64 are rounded on their way", EIGHT, bent("write", k=_narrowed)),
    Mutant("rows that are quantised are quantised again", EIGHT, bent("write", v=_widened)),
]
