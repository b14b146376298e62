"""``KVWriter.move``: tokens copied with all fields and layers."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from statehal.spec import Attention, ExtraField, Latent
from statehal.testing.check import check
from statehal.testing.draws import layer_ids
from statehal.testing.kv.inputs import Inputs
from statehal.testing.kv.scene import Scene
from statehal.testing.kv.setting import EIGHT, FEATURES, PLAIN, TOKENS, Setting, attention, claimed, settings
from statehal.testing.target import Target

ALL = (*PLAIN, *EIGHT)
NEEDS = ("kv.move", " or ".join(ALL))


@dataclass(frozen=True)
class MoveCase:
    """Tokens that are copied; the setting's tokens are the targets.

    Attributes:
        sources: tokens, or -1 for padding; some more than once.
    """

    setting: Setting
    sources: tuple[int, ...]

    @property
    def features(self) -> frozenset[str]:
        targets, pairs = self.setting.tokens, list(zip(self.setting.tokens, self.sources, strict=True))
        found = set(self.setting.features)
        found |= {"a padding source"} if any(a >= 0 > b for a, b in pairs) else set()
        found |= {"a padding target"} if any(a < 0 <= b for a, b in pairs) else set()
        found |= {"overlap"} if {a for a, b in pairs if a != b and a >= 0} & set(self.sources) else set()
        found |= {"a source that is its target"} if any(a == b >= 0 for a, b in pairs) else set()
        found |= (
            {"a source of two"}
            if len(set(self.sources) - {-1}) < len([one for one in self.sources if one >= 0])
            else set()
        )
        spec = self.setting.spec
        found |= {"scale fields"} if isinstance(spec, Attention) and spec.scales else set()
        found |= {"latent rows"} if isinstance(spec, Latent) else set()
        return frozenset(found | ({"cycle"} if len(targets) > 1 and set(targets) == set(self.sources) else set()))


@st.composite
def _spec(draw: DrawFn, tags: tuple[str, ...]) -> Attention | Latent:
    tag = draw(st.sampled_from(tags))
    if draw(st.integers(0, 3)) == 0:
        layers = draw(layer_ids())
        extra = ExtraField("index", (3,), "int32", layers[-1:])
        return Latent("kv", layers, 8, 4, tag.removeprefix("store:"), extra=(extra,))
    return draw(attention((tag,), scales=tag in EIGHT and draw(st.booleans())))


@st.composite
def _case(draw: DrawFn, tags: tuple[str, ...]) -> MoveCase:
    setting = draw(settings(draw(_spec(tags))))
    return MoveCase(setting, tuple(draw(st.integers(-1, TOKENS - 1)) for _ in setting.tokens))


@st.composite
def _overlapping(draw: DrawFn, tags: tuple[str, ...]) -> MoveCase:
    setting = draw(settings(draw(_spec(tags)), (2, 5, 16)))
    start, step = draw(st.integers(0, 3)), draw(st.sampled_from([-3, -1, 1, 3]))
    count = len(setting.tokens)
    if draw(st.booleans()):  # a run that slides over itself
        targets = tuple((start + n) % TOKENS for n in range(count))
        return MoveCase(replace(setting, tokens=targets), tuple((token + step) % TOKENS for token in targets))
    targets = tuple(draw(st.permutations(range(count))))
    return MoveCase(replace(setting, tokens=targets), tuple(draw(st.permutations(range(count)))))


def judge(target: Target, case: MoveCase) -> None:
    """Move, and compare all bytes with those of every row read before any is written."""
    scene = Scene(target, case.setting)
    sources = scene.pick(case.sources)
    ids = {
        f"tensor {n} of {name}": one
        for name, of in (("dst", scene.ids), ("src", sources))
        for n, one in enumerate(of.tensors)
    }
    inputs = Inputs(target, ids)
    before = scene.image()
    wanted = bytearray(before)
    scene.writer.move(scene.ids, sources)
    for field in scene.sub.layout.fields:
        size = field.row_bytes
        for group in field.layers:
            for token, source in zip(case.setting.tokens, case.sources, strict=True):
                row = scene.get(before, field.name, source, group[0]) if source >= 0 else bytes(size)
                scene.put(wanted, field.name, token, row, group[0])
    scene.compare(wanted, f"after move to tokens {case.setting.tokens} from {case.sources}")
    inputs.unchanged()


@check(
    "kv_move", needs=NEEDS, cases=lambda target: _case(claimed(target, ALL)),
    features=(
        *FEATURES, "scale fields if scales:per_token_head",
        "latent rows", "an extra field", "a layer that shares rows", "a source of two",
        "a padding source", "a padding target",
    ),
)  # fmt: skip
def check_tokens_move_with_all_fields_and_layers(target: Target, case: MoveCase) -> None:
    """A move copies every field and layer of a token; a padding dst stores nothing, and a padding src stores zeros."""
    judge(target, case)


@check(
    "kv_move", needs=NEEDS, cases=lambda target: _overlapping(claimed(target, ALL)),
    features=("overlap", "cycle", "scale fields if scales:per_token_head", "latent rows"),
)  # fmt: skip
def check_all_rows_are_read_before_any_is_written(target: Target, case: MoveCase) -> None:
    """Where sources and targets overlap, the result is as if all rows were read before any is written."""
    judge(target, case)
