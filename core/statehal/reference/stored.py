"""How rows of one field become what the field stores: as they are, or quantised."""

import torch
from torch import Tensor

from statehal.arguments.stored import StoredField
from statehal.reference.casts import as_scale, encode, row_scales
from statehal.reference.rounding import round_once


def stored_rows(field: StoredField, rows: Tensor, scale: Tensor | float | None) -> dict[str, Tensor]:
    """What to store, by field: ``rows`` ``[tokens, heads, dim]`` and, where it is kept, their scale.

    Args:
        field: where they go.
        rows: of the field's dtype, or float64 or a wider dtype that is rounded now.
        scale: one number or element, for all rows.
    """
    rows = rows.detach()
    if rows.dtype == field.dtype:
        return {field.name: rows}
    if not field.quantised:
        return {field.name: round_once(rows, field.dtype)}
    by = None if scale is None else as_scale(scale, rows.device)
    if not field.scaled:
        return {field.name: encode(rows, by, field.dtype)}
    scales = row_scales(rows, field.dtype) if by is None else by.expand(rows.shape[:2])
    return {field.name: encode(rows, scales, field.dtype), f"{field.name}_scale": scales.to(torch.float32)}
