"""Small pools of many shapes, for the state machine and the cases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from statehal import Attention, ConvRecurrent, Latent, plan
from statehal.layout import FormKind, PoolLayout, conv_window, layer_major, page_major, token_major
from statehal.pool import PoolPlan
from statehal.spec import Spec


@dataclass(frozen=True)
class Shape:
    """What a pool is made of, and what a long run on it must come across."""

    name: str
    page_size: int
    specs: tuple[Spec, ...]
    total_bytes: int
    budgets: Mapping[str, int] = field(default_factory=dict)
    forms: tuple[FormKind, ...] = ("row",)
    token_major: bool = False
    waste: float = 0.08

    @cached_property
    def plan(self) -> PoolPlan:
        """Slabs are kept small by a waste limit that a real pool would not want."""
        return plan(
            self.specs,
            total_bytes=self.total_bytes,
            page_size=self.page_size,
            layouts=self._layout,
            waste_limit=self.waste,
            budgets=self.budgets,
        )

    def _layout(self, spec: Spec, page_size: int) -> PoolLayout:
        if spec.kind == "slots":
            return conv_window(spec)
        if spec.name in self.budgets:
            return layer_major(spec, page_size)
        return (token_major if self.token_major else page_major)(spec, page_size, forms=self.forms)

    def __str__(self) -> str:
        return self.name


def attention(name: str, layers: Iterable[int], dim: int = 1, **more: object) -> Attention:
    """Keys and values of one head, as float32 so that tags up to 2**24 are exact."""
    return Attention(name, tuple(layers), kv_heads=1, head_dim=dim, dtype="float32", **more)  # type: ignore[arg-type]


FULL = attention("full", (0, 1))
SWA = attention("swa", (2, 3, 4), window=4)
LATENT = Latent("latent", (5,), kv_lora_rank=4, qk_rope_head_dim=1, dtype="int32")
SLOTS = ConvRecurrent("gdn", (6,), channels=3, width=3, dtype="float32", state=(1, 2), verify_tokens=2)
DIRECT = attention("fixed", (7,), ids="direct")
LAYERED = attention("layered", (8, 9), dim=2)
UNEVEN = attention("uneven", (10, 11), dim=3, v_head_dim=2, scales="per_token_head")

SHAPES = (
    Shape("single", 4, (FULL,), 64 * 9 + 16),
    Shape("two_widths", 3, (FULL, SWA), 144 * 6 + 5),
    Shape("three_widths", 1, (FULL, SWA, LATENT), 120 * 6, waste=0.3),
    Shape("hybrid", 16, (FULL, SLOTS), 768 * 5, waste=0.0),
    Shape("three_and_slots", 4, (FULL, SWA, LATENT, SLOTS), 240 * 7, waste=0.3, token_major=True),
    Shape("direct", 4, (FULL, DIRECT, SWA), 192 * 6),
    Shape("layered", 3, (FULL, LAYERED, SWA), 144 * 5 + 4096 + 600, budgets={"layered": 600}),
    Shape("uneven_forms", 4, (UNEVEN, SWA), 240 * 7, forms=("row", "page"), waste=0.2),
)
