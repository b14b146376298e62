"""The answers of ``certify``, as a literal table; and the same function over what a pool is in truth."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from portability.images import HAL, make_pool
from portability.models import BY_NAME
from statehal import Attention, ConvRecurrent, ExtraField, Latent
from statehal.layout import ConvStateLayout, PoolLayout, conv_window, page_major
from statehal.portability import CanonicalState, Grouping, RankSubPool, Topology, certify, certify_pool, shard
from statehal.spec import Spec

FULL = Attention("full", (0, 2, 4, 6), 8, 16, "bfloat16")
SWA = Attention("swa", (1, 3, 5, 7), 8, 16, "bfloat16", window=128)
MLA = Latent("mla", (0, 1, 2, 3), 32, 8, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8"),))
WINDOWED_MLA = Latent("mla", (0, 1, 2, 3), 32, 8, "bfloat16", window=128)
FP8 = Attention("fp8", (0, 1, 2, 3), 8, 16, "float8_e4m3fn", scales="per_token_head")
UNEVEN = Attention("uneven", (0, 1, 2, 3), 4, 192, "bfloat16", v_head_dim=128)
SIX = Attention("six", (0, 1, 2, 3), 6, 16, "bfloat16")
GATED = Attention("gated", (0, 1), 8, 16, "bfloat16", extra=(ExtraField("gate", (8, 2), "float16", heads=8),))
SHARED = Attention("shared", (0, 1), 8, 16, "bfloat16", shared=((3, 1),))
GDN = ConvRecurrent(
    "gdn", (1, 3), 128, 4, "bfloat16", sections=(32, 32, 64), section_heads=(4, 4, 8), state=(8, 16, 16)
)
UNDECLARED = replace(GDN, section_heads=None)
SSM = ConvRecurrent("ssm", (0, 1), 96, 4, "bfloat16", sections=(64, 16, 16), section_heads=(16, 1, 1), state=(16, 4, 8))
GROUPS = ConvRecurrent(
    "ssm", (0, 1), 96, 4, "bfloat16", sections=(64, 16, 16), section_heads=(8, 2, 2), state=(8, 8, 8)
)
REPLAY = ConvRecurrent(
    "kda",
    (0,),
    32,
    4,
    "bfloat16",
    sections=(32,),
    section_heads=(4,),
    verify_tokens=3,
    extra=(ExtraField("replay", (5, 8), "bfloat16"),),
)

YES: list[tuple[str, tuple[Spec, ...], Topology, dict[str, str]]] = [
    ("full attention, undivided", (FULL,), Topology(), {"full": "k, v: 8 of 8 heads a rank"}),
    ("full attention", (FULL,), Topology(tensor=4), {"full": "k, v: 2 of 8 heads a rank"}),
    ("sliding window", (SWA,), Topology(tensor=8), {"swa": "k, v: 1 of 8 heads a rank"}),
    (
        "full and sliding window",
        (FULL, SWA),
        Topology(tensor=2),
        {"full": "k, v: 4 of 8 heads a rank", "swa": "k, v: 4 of 8 heads a rank"},
    ),
    ("replicated heads", (FULL,), Topology(tensor=16), {"full": "k, v: 1 of 8 heads a rank, on 2 ranks each"}),
    ("latent with an indexer", (MLA,), Topology(tensor=8), {"mla": "latent, indexer: whole on every rank"}),
    (
        "scales by token and head",
        (FP8,),
        Topology(tensor=2),
        {"fp8": "k, v, k_scale, v_scale: 4 of 8 heads a rank"},
    ),
    ("unequal head dims", (UNEVEN,), Topology(tensor=4), {"uneven": "k, v: 1 of 4 heads a rank"}),
    ("a further row by head", (GATED,), Topology(tensor=2), {"gated": "k, v, gate: 4 of 8 heads a rank"}),
    (
        "conv hybrid",
        (FULL, GDN),
        Topology(tensor=4),
        {
            "full": "k, v: 2 of 8 heads a rank",
            "gdn": "conv.0, conv.1: 1 of 4 heads a rank; conv.2, state: 2 of 8 heads a rank",
        },
    ),
    (
        "B and C of one group",
        (SSM,),
        Topology(tensor=4),
        {"ssm": "conv.0, state: 4 of 16 heads a rank; conv.1, conv.2: whole on every rank"},
    ),
    (
        "B and C of fewer groups than ranks",
        (GROUPS,),
        Topology(tensor=4),
        {"ssm": "conv.0, state: 2 of 8 heads a rank; conv.1, conv.2: 1 of 2 heads a rank, on 2 ranks each"},
    ),
    (
        "sections that are not declared, undivided",
        (UNDECLARED,),
        Topology(),
        {"gdn": "conv: whole; state: 8 of 8 heads a rank"},
    ),
    (
        "a pipeline in two",
        (FULL, SWA),
        Topology(tensor=2, pipeline=2),
        {"full": "k, v: 4 of 8 heads a rank", "swa": "k, v: 4 of 8 heads a rank"},
    ),
    (
        "an uneven pipeline",
        (FULL,),
        Topology(pipeline=3, stage_layers=(1, 1, 5)),
        {"full": "k, v: 8 of 8 heads a rank"},
    ),
    (
        "shared rows in one stage",
        (SHARED,),
        Topology(pipeline=2, stage_layers=(1, 3)),
        {"shared": "k, v: 8 of 8 heads a rank"},
    ),
]

_CONTEXT = "context=2 ranks hold different tokens of a sequence, so no rank has a whole span"
NO: list[tuple[str, tuple[Spec, ...], Topology, dict[str, str]]] = [
    (
        "sliding-window latent",
        (WINDOWED_MLA,),
        Topology(tensor=2),
        {
            "mla": "a latent with a window of 128: models of this kind keep a compressed form of the tokens that left "
            "it, which the spec does not declare, so these rows alone are not known to be the state"
        },
    ),
    (
        "conv channels as older rules know them",
        (UNDECLARED,),
        Topology(tensor=2),
        {
            "gdn": "which conv channels tensor=2 divides and which it repeats is not declared (fix: give the spec "
            "sections and section_heads)"
        },
    ),
    (
        "heads that do not divide",
        (SIX,),
        Topology(tensor=4),
        {"six": "6 heads of 'k' do not divide over tensor=4, nor it over them"},
    ),
    (
        "ranks that do not divide",
        (SIX,),
        Topology(tensor=16),
        {"six": "6 heads of 'k' do not divide over tensor=16, nor it over them"},
    ),
    ("context parallel", (FULL, GDN), Topology(context=2), {"full": _CONTEXT, "gdn": _CONTEXT}),
    (
        "shared rows across stages",
        (SHARED,),
        Topology(pipeline=2),
        {"shared": "layer 3 reads the rows of layer 1, which another pipeline stage has"},
    ),
    (
        "a replay ring",
        (REPLAY,),
        Topology(),
        {"kda": "its replay ring has a row for each draft that this host verifies, so it is of this host's making"},
    ),
]


@pytest.mark.parametrize(("specs", "topology", "reasons"), [case[1:] for case in YES], ids=[case[0] for case in YES])
def test_what_is_certified(specs: tuple[Spec, ...], topology: Topology, reasons: dict[str, str]) -> None:
    found = certify(specs, topology)
    assert {name: (one.certified, one.reason) for name, one in found.items()} == {
        name: (True, reason) for name, reason in reasons.items()
    }


@pytest.mark.parametrize(("specs", "topology", "reasons"), [case[1:] for case in NO], ids=[case[0] for case in NO])
def test_what_is_not_certified(specs: tuple[Spec, ...], topology: Topology, reasons: dict[str, str]) -> None:
    found = certify(specs, topology)
    assert {name: (one.certified, one.reason) for name, one in found.items()} == {
        name: (False, reason) for name, reason in reasons.items()
    }


def test_one_layer_that_cannot_be_certified_does_not_sink_the_model() -> None:
    found = certify((FULL, UNDECLARED, replace(MLA, name="mla")), Topology(tensor=2))
    assert {name: one.certified for name, one in found.items()} == {"full": True, "gdn": False, "mla": True}


def test_groups_of_several_specs_are_judged_spec_by_spec() -> None:
    grouped: Any = [[FULL, SWA], [UNDECLARED], MLA]
    assert certify(grouped, Topology(tensor=2)) == certify([FULL, SWA, UNDECLARED, MLA], Topology(tensor=2))


@pytest.mark.parametrize(
    ("grouping", "topology", "reason"),
    [
        (
            Grouping.of([FULL], layers=4),
            Topology(pipeline=2),
            "a boundary of pipeline=2 falls inside the layer group (0, 2, 4, 6) (fix: fewer layers a group)",
        ),
        (Grouping.of([FULL], layers=2), Topology(pipeline=2), None),
        (
            Grouping.of([FULL], head_groups=2),
            Topology(tensor=4),
            "a boundary of tensor=4 falls inside a group of 4 heads of 'k' (fix: more head groups)",
        ),
        (Grouping.of([FULL], head_groups=2), Topology(tensor=2), None),
        (
            Grouping.of([FULL], head_groups=4),
            Topology(tensor=16),
            "a boundary of tensor=16 falls inside a group of 2 heads of 'k' (fix: more head groups)",
        ),
    ],
)
def test_a_boundary_inside_a_group_is_refused(grouping: Grouping, topology: Topology, reason: str | None) -> None:
    verdict = certify([FULL], topology, grouping=grouping)["full"]
    assert (verdict.certified, reason) == (reason is None, reason and verdict.reason)


def layout_of(spec: Spec, **change: Any) -> PoolLayout:
    return page_major(replace(spec, **change) if change else spec, 4)


LOCAL = shard([FULL], Topology(tensor=2), 1)[0]
MISFITS: list[tuple[str, PoolLayout | None, str]] = [
    ("all heads", layout_of(FULL), "field 'k' has rows of 128 elements: expected 64"),
    ("another dtype", layout_of(LOCAL, dtype="float16"), "field 'k' is stored as float16: expected bfloat16"),
    (
        "e4m3fn for bfloat16",
        layout_of(LOCAL, dtype="float8_e4m3fn"),
        "field 'k' is stored as float8_e4m3fn: expected bfloat16",
    ),
    ("a layer less", layout_of(LOCAL, layers=(0, 2, 4)), "field 'k' has layers (0, 2, 4): expected (0, 2, 4, 6)"),
    (
        "layers of another order",
        layout_of(LOCAL, layers=(0, 4, 2, 6)),
        "field 'k' has layers (0, 4, 2, 6): expected (0, 2, 4, 6)",
    ),
    ("no V", PoolLayout(layout_of(LOCAL).fields[:1], ()), "its layout has no field 'v': ['k']"),
    (
        "a field that nobody declared",
        layout_of(LOCAL, extra=(ExtraField("mask", (4,), "uint8"),)),
        "its layout has fields ['mask'], which the spec does not declare",
    ),
    ("none", None, "rank 1 keeps no such sub-pool, and its pipeline stage has layers of it"),
]


@pytest.mark.parametrize(("layout", "reason"), [case[1:] for case in MISFITS], ids=[case[0] for case in MISFITS])
def test_a_layout_that_does_not_hold_the_ranks_share_is_refused(layout: PoolLayout | None, reason: str) -> None:
    assert certify([FULL], Topology(tensor=2), rank=1, layouts={"full": layout_of(LOCAL)})["full"].certified
    layouts = {} if layout is None else {"full": layout}
    verdict = certify([FULL], Topology(tensor=2), rank=1, layouts=layouts)["full"]
    assert (verdict.certified, verdict.reason) == (False, reason)


def test_heads_that_are_written_across_digits_are_refused() -> None:
    """A row of two heads of 4 in pieces of 8 elements: a head is no run of pieces."""
    spec = Attention("full", (0,), 2, 4, "bfloat16")
    tight = page_major(spec, 4)
    rows = tuple(replace(one, row_shape=(4, 2), row_strides=(2, 8), token_strides=(16,)) for one in tight.fields)
    layout = PoolLayout(rows, ())
    assert certify([spec], Topology(), layouts={"full": layout})["full"].certified  # whole rows are fine
    wide = replace(spec, kv_heads=1, head_dim=8)
    assert certify([wide], Topology(), layouts={"full": layout})["full"].certified
    three = Attention("full", (0,), 2, 3, "bfloat16")
    pieces = tuple(
        replace(one, row_shape=(3, 2), row_strides=(2, 6), token_strides=(12,)) for one in page_major(three, 4).fields
    )
    verdict = certify([three], Topology(), layouts={"full": PoolLayout(pieces, ())})["full"]
    assert verdict.reason == "a row of field 'k' is written in digits (3, 2), which do not part at 3"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("layout", ["NHD", "HND", "token-major", "packed", "NZ"])
def test_a_pool_of_the_ranks_share_is_certified_live(layout: str, rank: int) -> None:
    model, topology = BY_NAME["full"].spec, Topology(tensor=2)
    pool = make_pool(shard([model], topology, rank), layout, 4, tokens=64)
    assert certify_pool([model], topology, rank, pool)["full"].certified


def test_live_strides_that_differ_from_the_layout_fail_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, topology = BY_NAME["full"].spec, Topology(tensor=2)
    pool = make_pool(shard([model], topology, 0), "NHD", 4, tokens=64)
    sub = pool["full"]
    honest = sub.view

    def moved(field: str, layer: int, form: Any = None) -> torch.Tensor:
        view = honest(field, layer, form)
        if (field, layer) != ("v", 2):
            return view
        return view.as_strided(view.shape, view.stride(), view.storage_offset() + 32)

    monkeypatch.setattr(sub, "view", moved)
    verdict = certify_pool([model], topology, 0, pool)["full"]
    assert not verdict.certified
    assert verdict.reason.startswith("layer 2 of field 'v' lies at ")
    assert ": its layout says at " in verdict.reason


def test_a_sub_pool_that_does_not_divide_leaves_the_others_certified_live() -> None:
    """The conv channels of this rank are of the host's own making, because nothing says how they divide."""
    topology, local = Topology(tensor=2), replace(UNDECLARED, channels=64, sections=None, state=(4, 16, 16))
    full = shard([FULL], topology, 1)[0]
    pool = make_pool([full, local], {"full": "HND", "gdn": "ring"}, 4, tokens=64)
    found = certify_pool([FULL, UNDECLARED], topology, 1, pool)
    assert {name: one.certified for name, one in found.items()} == {"full": True, "gdn": False}
    held = RankSubPool(pool["gdn"], [FULL, UNDECLARED], topology, 1)
    assert held.specs == (local,)
    assert {part.id for part in held.object.parts} == {
        f"layers{n}-{n + 1}.{rest}" for n in range(2) for rest in ("whole", *(f"heads{g}of4" for g in range(4)))
    }


def test_what_a_hosts_own_spec_leaves_unsaid_is_taken_from_the_model() -> None:
    """A host that plans its pool without section_heads still reads and writes the model's sections."""
    topology = Topology(tensor=2)
    local: Any = shard([GDN], topology, 1)[0]
    pool = make_pool([replace(local, section_heads=None)], "ring", 4, tokens=4)
    state = CanonicalState(HAL, RankSubPool(pool["gdn"], [GDN], topology, 1))
    assert {piece.section.name for _, piece in state.object.pieces()} == {"conv.0", "conv.1", "conv.2", "state"}


@pytest.mark.parametrize(
    ("change", "conv", "reason"),
    [
        ({"verify_tokens": 3}, ConvStateLayout(), "field 'conv' has rows of (5, 64): expected (3, 64)"),
        (
            {"channels": 72, "sections": None, "section_heads": None},
            ConvStateLayout("channels_first", 16),
            "field 'conv' has rows of (80, 3): expected (64, 3)",
        ),
        ({"state": (8, 16, 16)}, ConvStateLayout(), "field 'state' has rows of 2048 elements: expected 1024"),
    ],
)
def test_a_slot_of_another_shape_is_refused(change: dict[str, Any], conv: ConvStateLayout, reason: str) -> None:
    local = shard([GDN], Topology(tensor=2), 1)[0]
    layouts = {"gdn": conv_window(local, conv)}
    assert certify([GDN], Topology(tensor=2), rank=1, layouts=layouts)["gdn"].certified
    layouts = {"gdn": conv_window(replace(local, **change), conv)}
    assert certify([GDN], Topology(tensor=2), rank=1, layouts=layouts)["gdn"].reason == reason


def test_rows_that_are_not_given_are_not_assumed() -> None:
    layouts = {"full": layout_of(LOCAL)}
    verdict = certify([FULL], Topology(tensor=2), rank=1, layouts=layouts, rows={})["full"]
    assert verdict.reason.startswith("layer 0 of field 'k' lies nowhere: its layout says at 0 as bfloat16 with strides")


def test_a_pool_that_is_not_certified_is_read_as_its_ranks_own() -> None:
    pool = make_pool([WINDOWED_MLA], "NHD", 4, tokens=64)
    held = RankSubPool(pool["mla"], [WINDOWED_MLA], Topology(tensor=2), 1)
    assert not held.verdict.certified
    assert (held.topology, held.rank, held.specs) == (Topology(), 0, (WINDOWED_MLA,))
    assert [part.id for part in held.object.parts] == [f"layers{n}-{n + 1}.whole" for n in range(4)]
