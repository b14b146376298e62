"""Attention layers: keys and values by head, or one latent row (MLA)."""

from dataclasses import dataclass, field
from typing import Literal

from statehal.errors import SpecError
from statehal.spec.base import FieldSpec, Spec, require_positive
from statehal.spec.dtypes import dtype_name


@dataclass(frozen=True)
class Attention(Spec):
    """Grouped-query attention: a token keeps K ``[kv_heads, head_dim]`` and V ``[kv_heads, v_head_dim]`` a layer.

    Attributes:
        dtype: storage dtype of K and V.
        v_head_dim: width of V; ``None`` means ``head_dim``.
        window: tokens that a sliding-window layer attends to, the newest included; ``None`` is full attention.
        scales: ``"per_token_head"`` adds float32 rows ``k_scale`` and ``v_scale`` ``[kv_heads]``.
    """

    kv_heads: int
    head_dim: int
    dtype: str
    v_head_dim: int | None = field(default=None, kw_only=True)
    window: int | None = field(default=None, kw_only=True)
    scales: Literal["per_token_head"] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        require_positive(
            self, kv_heads=self.kv_heads, head_dim=self.head_dim, v_head_dim=self.v_head_dim, window=self.window
        )
        if self.scales not in (None, "per_token_head"):
            raise SpecError(f"spec {self.name!r} has scales={self.scales!r}: expected None or 'per_token_head'")

    def fields(self) -> tuple[FieldSpec, ...]:
        groups = self.groups()
        value_dim = self.head_dim if self.v_head_dim is None else self.v_head_dim
        rows = [
            FieldSpec("k", (self.kv_heads, self.head_dim), self.dtype, groups),
            FieldSpec("v", (self.kv_heads, value_dim), self.dtype, groups),
        ]
        if self.scales is not None:
            rows += [FieldSpec(name, (self.kv_heads,), "float32", groups) for name in ("k_scale", "v_scale")]
        return (*rows, *super().fields())


@dataclass(frozen=True)
class Latent(Spec):
    """Multi-head latent attention: a token keeps one row ``[1, kv_lora_rank + qk_rope_head_dim]`` a layer.

    Attributes:
        dtype: storage dtype of the row.
        window: as for ``Attention``.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    dtype: str
    window: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        require_positive(
            self, kv_lora_rank=self.kv_lora_rank, qk_rope_head_dim=self.qk_rope_head_dim, window=self.window
        )

    def fields(self) -> tuple[FieldSpec, ...]:
        row = FieldSpec("latent", (1, self.kv_lora_rank + self.qk_rope_head_dim), self.dtype, self.groups())
        return (row, *super().fields())
