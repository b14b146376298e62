"""What a field of an attention sub-pool takes: its own dtype, or a wider one where it quantises."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from statehal.arguments.scales import LARGEST, LARGEST_SCALE, require_scale
from statehal.arguments.tensors import require_rows
from statehal.errors import ArgumentError

WIDE = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes of what a model computes, and so of rows that are still to be quantised."""


@dataclass(frozen=True)
class StoredField:
    """A field of an attention sub-pool, and the arguments that fill it.

    Attributes:
        name: of the field.
        shape: of one row as callers give it, heads first.
        dtype: of what is stored.
        device: of the pool.
        scaled: whether the scale of each token and head is kept, in the field ``f"{name}_scale"``.
        quantised: whether wider rows are cast to what is stored.
        dtypes: those that rows may have where no scale is given.
        scaled_dtypes: where one is.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    scaled: bool = False
    quantised: bool = field(init=False)
    dtypes: tuple[torch.dtype, ...] = field(init=False)
    scaled_dtypes: tuple[torch.dtype, ...] = field(init=False)

    def __post_init__(self) -> None:
        quantised = self.dtype in LARGEST
        cast = WIDE if quantised else ()
        exact = (*cast, self.dtype)
        object.__setattr__(self, "quantised", quantised)
        object.__setattr__(self, "dtypes", cast if quantised and self.scaled else exact)
        object.__setattr__(self, "scaled_dtypes", cast if quantised else exact)

    def require_scale(self, where: str, name: str, scale: Tensor | float | None) -> None:
        """Refuse what is no scale, and any scale where what is stored takes none."""
        if scale is None and not self.scaled:
            return
        if not self.quantised:
            given = "its spec has scales='per_token_head'" if self.scaled else f"{name} is given"
            fix = "a spec without scales" if self.scaled else f"leave {name} out"
            raise ArgumentError(
                f"{where}: {given}: scales are for fp8 and int8 storage, and {self.name!r} is stored as {self.dtype} "
                f"(fix: {fix})"
            )
        if scale is not None:
            require_scale(where, name, scale, self.device)

    def takes_scale(self, scale: Tensor | float) -> bool:
        """Whether a scale is a float or a plain tensor that ``require_scale`` takes; ``False`` of anything else."""
        if type(scale) is Tensor:
            one = scale.numel() == 1 and scale.is_floating_point()
            return self.quantised and one and scale.device == self.device
        return self.quantised and type(scale) is float and 2.0**-150 < scale <= LARGEST_SCALE

    def require(
        self, where: str, name: str, rows: Tensor, shape: tuple[int, ...], scale: Tensor | float | None
    ) -> None:
        """Refuse rows that are not what this field takes.

        Rows of its own dtype are stored bit for bit; they are refused where a scale would have to be applied or kept.
        """
        require_rows(where, name, rows, shape, self.dtypes if scale is None else self.scaled_dtypes, self.device)

    def require_wide(self, where: str, name: str, rows: Tensor, shape: tuple[int, ...]) -> None:
        """Refuse rows that are not floating, or not of the field's dtype where that is one to compute in."""
        dtypes = (self.dtype,) if self.dtype in WIDE else WIDE
        if not self.quantised and self.dtype not in WIDE:
            raise ArgumentError(
                f"{where}: {self.name!r} is stored as {self.dtype}: expected a floating dtype or int8 (fix: use write)"
            )
        require_rows(where, name, rows, shape, dtypes, self.device)
