"""A setting of a KV write to draw: a spec, a layer of it, and tokens with padding among them."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.spec import Attention, ExtraField, Latent, Spec
from statehal.testing.draws import layer_features, layer_ids, neighbours, page_sizes
from statehal.testing.target import Target

PLAIN = ("store:float32", "store:bfloat16", "store:float16")
"""Tags of the dtypes that need no cast."""

EIGHT = ("store:float8_e4m3fn", "store:float8_e4m3fnuz", "store:float8_e5m2", "store:float8_e5m2fnuz", "store:int8")
"""Tags of the dtypes that rows are quantised to."""

ANY_PLAIN, ANY_EIGHT = " or ".join(PLAIN), " or ".join(EIGHT)
"""What a check needs whose storage dtype is drawn from those claimed."""

TOKENS = 16
"""Tokens that are allocated."""

WIDE = ("float32", "bfloat16", "float16")
"""Dtypes of what a model computes."""

PAGES = ("page size 1", "page size 3", "page size 5", "page size 16")
LAYERS = ("one layer", "several layers", "61 layers")
PADDING = ("a negative id", "an id of the sink")
FEATURES = (*PAGES, *LAYERS, *PADDING, "a view of a bigger pool", "zero tokens", "one token", "int32", "int64")
"""Features of a setting that every check of writes has to draw."""


def claimed(target: Target, tags: tuple[str, ...]) -> tuple[str, ...]:
    """Those of some tags that the backend claims."""
    return tuple(tag for tag in tags if tag in target.offers)


@dataclass(frozen=True)
class Setting:
    """A layer of a sub-pool named ``"kv"``, and tokens in it.

    Attributes:
        tokens: of each row the token that it is stored at, of those allocated; -1 for padding.
        seed: of the values.
        strided: rows are slices of one packed tensor.
        negative: padding is given as negative kernel ids, not as ids of the sink.
    """

    spec: Attention | Latent
    others: tuple[Spec, ...]
    page_size: int
    layer: int
    tokens: tuple[int, ...]
    seed: int
    strided: bool
    negative: bool
    id_dtype: torch.dtype

    @property
    def features(self) -> frozenset[str]:
        """In words."""
        spec = self.spec
        found = layer_features(spec.layers, self.page_size, self.others)
        found |= {spec.dtype, str(self.id_dtype).removeprefix("torch.")}
        found |= {"strided inputs"} if self.strided else set()
        found |= {"a negative id" if self.negative else "an id of the sink"} if -1 in self.tokens else set()
        found |= {"zero tokens"} if not self.tokens else {"one token"} if len(self.tokens) == 1 else set()
        found |= {"a layer that shares rows"} if self.layer not in spec.layers else set()
        found |= {"an extra field"} if spec.extra else set()
        if isinstance(spec, Attention) and spec.v_head_dim not in (None, spec.head_dim):
            found.add("v_head_dim differs")
        return frozenset(found)


@st.composite
def attention(draw: DrawFn, dtypes: tuple[str, ...], *, scales: bool = False, head_dim: int | None = None) -> Attention:
    """A spec named ``"kv"`` in one of the dtypes.

    Args:
        dtypes: tags, such as ``"store:bfloat16"``.
        scales: whether scales are kept.
        head_dim: drawn where it is not given.
    """
    layers = draw(layer_ids())
    shared = tuple((70 + n, layer) for n, layer in enumerate(layers[:2])) if draw(st.integers(0, 4)) == 0 else ()
    index = ExtraField("index", (3,), "int32", layers[:1])
    return Attention(
        "kv",
        layers,
        draw(st.integers(1, 4)),
        head_dim or draw(st.sampled_from([4, 6, 8])),
        draw(st.sampled_from(dtypes)).removeprefix("store:"),
        v_head_dim=draw(st.sampled_from([None, None, 4, 10])),
        window=draw(st.sampled_from([None, None, 8])),
        scales="per_token_head" if scales else None,
        shared=shared,
        extra=(index,) if draw(st.integers(0, 4)) == 0 else (),
    )


@st.composite
def settings(draw: DrawFn, spec: Attention | Latent, counts: tuple[int, ...] = (0, 1, 2, 7, 12)) -> Setting:
    """Where and how rows of a spec are written.

    Args:
        counts: of rows in a call.
    """
    places = draw(st.permutations(range(TOKENS)))[: draw(st.sampled_from(counts))]
    return Setting(
        spec,
        draw(neighbours()),
        draw(page_sizes()),
        draw(st.sampled_from([layer for group in spec.groups() for layer in group])),
        tuple(place if draw(st.integers(0, 4)) else -1 for place in places),
        draw(st.integers(0, 999)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([torch.int32, torch.int64])),
    )
