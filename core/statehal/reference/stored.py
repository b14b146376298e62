"""How rows of one field become what the field stores: as they are, or quantised."""

from dataclasses import dataclass

import torch
from torch import Tensor

from statehal.errors import ArgumentError
from statehal.reference.casts import LARGEST, WIDE, encode, given_scale, row_scales
from statehal.reference.rounding import round_once
from statehal.reference.validate import require_rows


@dataclass(frozen=True)
class StoredField:
    """A field of an attention sub-pool, and the arguments that fill it.

    Attributes:
        name: of the field.
        shape: of one row as callers give it, heads first.
        scaled: whether the scale of each token and head is kept, in the field ``f"{name}_scale"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    scaled: bool = False

    @property
    def quantised(self) -> bool:
        """Whether wider rows are cast to what is stored."""
        return self.dtype in LARGEST

    def scale(self, where: str, name: str, value: Tensor | float | None) -> Tensor | None:
        """A scale argument as a tensor without axes; ``None`` where none was given.

        Raises:
            ArgumentError: it is no scale, or what is stored takes none.
        """
        if not self.quantised and (self.scaled or value is not None):
            given = "its spec has scales='per_token_head'" if self.scaled else f"{name} is given"
            fix = "a spec without scales" if self.scaled else f"leave {name} out"
            raise ArgumentError(
                f"{where}: {given}: scales are for fp8 and int8 storage, and {self.name!r} is stored as {self.dtype} "
                f"(fix: {fix})"
            )
        return None if value is None else given_scale(where, name, value, self.device)

    def require(self, where: str, name: str, rows: Tensor, shape: tuple[int, ...], scale: Tensor | None) -> None:
        """Refuse rows that are not what this field takes: its own dtype, or a wider one where it quantises.

        Rows of its own dtype are stored bit for bit; they are refused where a scale would have to be applied or kept.
        """
        exact = not self.quantised or (scale is None and not self.scaled)
        dtypes = (*(WIDE if self.quantised else ()), *((self.dtype,) if exact else ()))
        require_rows(where, name, rows, shape, dtypes, self.device)

    def require_wide(self, where: str, name: str, rows: Tensor, shape: tuple[int, ...]) -> None:
        """Refuse rows that are not floating, or not of the field's dtype where that is one to compute in."""
        dtypes = (self.dtype,) if self.dtype in WIDE else WIDE
        if not self.quantised and self.dtype not in WIDE:
            raise ArgumentError(
                f"{where}: {self.name!r} is stored as {self.dtype}: expected a floating dtype or int8 (fix: use write)"
            )
        require_rows(where, name, rows, shape, dtypes, self.device)

    def encode(self, rows: Tensor, scale: Tensor | None) -> dict[str, Tensor]:
        """What to store, by field: ``rows`` ``[tokens, heads, dim]`` and, where it is kept, their scale.

        Args:
            rows: of the field's dtype, or float64 or a wider dtype that is rounded now.
            scale: as ``scale`` gave it.
        """
        if rows.dtype == self.dtype:
            return {self.name: rows}
        if not self.quantised:
            return {self.name: round_once(rows, self.dtype)}
        if not self.scaled:
            return {self.name: encode(rows, scale, self.dtype)}
        scales = row_scales(rows, self.dtype) if scale is None else scale.expand(rows.shape[:2])
        return {self.name: encode(rows, scales, self.dtype), f"{self.name}_scale": scales}
