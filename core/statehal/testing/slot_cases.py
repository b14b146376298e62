"""Specs of slots, for checks of their layouts."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.hookspecs.capabilities import REPLAY
from statehal.spec import ConvRecurrent, ExtraField, Spec
from statehal.testing.draws import layer_features, layer_ids, neighbours, storage
from statehal.testing.target import Target

FEATURES = (
    "one layer", "several layers", "61 layers", "a view of a bigger pool", "a recurrent state", "no recurrent state",
    "extra rows", "drafts", "no drafts", "width 2", "width 8",
)  # fmt: skip


@dataclass(frozen=True)
class SlotCase:
    """A spec of slots, and the sub-pools that it shares a pool with.

    Attributes:
        tokens: of a sequence that is stored.
        seed: of the inputs and of the places that are looked at.
    """

    spec: ConvRecurrent
    others: tuple[Spec, ...]
    tokens: int
    seed: int

    @property
    def features(self) -> frozenset[str]:
        spec = self.spec
        found = layer_features(spec.layers, 1, self.others) | {f"width {spec.width}", spec.dtype}
        found.add("a recurrent state" if spec.state else "no recurrent state")
        found.add("drafts" if spec.verify_tokens > 1 else "no drafts")
        names = {extra.name for extra in spec.extra}
        return frozenset(
            found | ({"a replay ring"} if "replay" in names else set()) | ({"extra rows"} if "more" in names else set())
        )


@st.composite
def _cases(draw: DrawFn, tags: tuple[str, ...], replay: bool, many: bool) -> SlotCase:
    layers = tuple(range(61)) if many and draw(st.integers(0, 9)) == 0 else draw(layer_ids())[:4]
    width, drafts = draw(st.sampled_from([2, 3, 4, 5, 6, 7, 8, 8])), draw(st.sampled_from([1, 1, 2, 4]))
    extra: list[ExtraField] = []
    if draw(st.booleans()):
        extra.append(ExtraField("more", *draw(st.sampled_from([((5,), "float32"), ((3,), "uint8")])), layers[:2]))
    if replay and draw(st.booleans()):
        extra.append(ExtraField("replay", (width + drafts - 2, 3), "float32"))
    spec = ConvRecurrent(
        "conv",
        layers,
        draw(st.integers(1, 7)),
        width,
        draw(storage(tags, "window:")),
        verify_tokens=drafts,
        state=draw(st.sampled_from([None, (2, 3), (3,)])),
        state_dtype=draw(st.sampled_from(["float32", "bfloat16"])),
        extra=tuple(extra),
    )
    return SlotCase(spec, draw(neighbours()), draw(st.integers(1, 10)), draw(st.integers(0, 999)))


def cases(target: Target, *, many: bool = True) -> Any:
    """Specs in the window dtypes that the backend claims, bfloat16 where it claims none; replay rings where claimed.

    Args:
        many: 61 layers now and then.
    """
    tags = tuple(sorted(tag for tag in target.info.capabilities if tag.startswith("window:")))
    return _cases(tags or ("window:bfloat16",), REPLAY in target.info.capabilities, many)
