"""Specs of token sub-pools, for checks of their layouts."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.spec import Attention, ExtraField, Latent, Spec
from statehal.testing.draws import layer_features, layer_ids, neighbours
from statehal.testing.target import Target

SIZES = (1, 3, 5, 16, 128)
FEATURES = (
    *(f"page size {size}" for size in SIZES), "one layer", "several layers", "61 layers", "a view of a bigger pool",
    "Latent", "Attention", "v_head_dim differs", "scales", "extra rows", "shared layers",
)  # fmt: skip


@dataclass(frozen=True)
class LayoutCase:
    """A spec, and the sub-pools that it shares a pool with.

    Attributes:
        seed: of the tokens that are looked at.
    """

    spec: Attention | Latent
    others: tuple[Spec, ...]
    page_size: int
    seed: int

    @property
    def features(self) -> frozenset[str]:
        spec = self.spec
        found = layer_features(spec.layers, self.page_size, self.others) | {type(spec).__name__, spec.dtype}
        if isinstance(spec, Attention):
            found |= {"v_head_dim differs"} if spec.v_head_dim not in (None, spec.head_dim) else set()
            found |= {"scales"} if spec.scales else set()
        return frozenset(
            found | ({"extra rows"} if spec.extra else set()) | ({"shared layers"} if spec.shared else set())
        )


@st.composite
def _cases(draw: DrawFn, dtypes: tuple[str, ...]) -> LayoutCase:
    layers = tuple(range(61)) if draw(st.integers(0, 9)) == 0 else draw(layer_ids())
    dtype = draw(st.sampled_from(dtypes))
    extra: tuple[ExtraField, ...] = ()
    if draw(st.booleans()):
        some = tuple(draw(st.permutations(layers[:4])))[: draw(st.integers(1, 2))]
        row = draw(st.sampled_from([((33,), "uint8"), ((2, 3), "float32"), ((5,), "int64")]))
        extra = (ExtraField("index", *row, draw(st.sampled_from([None, some]))),)
    shared = tuple((layer, draw(st.sampled_from(layers))) for layer in draw(st.sampled_from([(), (70,), (70, 75)])))
    if draw(st.integers(0, 3)) == 0:
        spec: Attention | Latent = Latent("rows", layers, 12, 4, dtype, shared=shared, extra=extra)
    else:
        most = 4 if len(layers) < 5 else 1
        spec = Attention(
            "rows",
            layers,
            draw(st.integers(1, most)),
            draw(st.sampled_from([4, 6, 8])),
            dtype,
            v_head_dim=draw(st.sampled_from([None, None, 4])),
            scales=draw(st.sampled_from([None, None, "per_token_head"])),
            shared=shared,
            extra=extra,
        )
    return LayoutCase(spec, draw(neighbours()), draw(st.sampled_from(SIZES)), draw(st.integers(0, 999)))


def cases(target: Target) -> Any:
    """Specs in the dtypes that the backend stores; bfloat16 where it claims none."""
    stored = [tag.removeprefix("store:") for tag in sorted(target.info.capabilities) if tag.startswith("store:")]
    return _cases(tuple(stored) or ("bfloat16",))
