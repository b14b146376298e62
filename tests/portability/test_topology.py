"""What a rank keeps of a model, and who writes what several ranks hold."""

from dataclasses import replace
from typing import Any

import pytest

from portability.models import BY_NAME
from statehal import Attention, ConvRecurrent, ExtraField, Latent
from statehal.errors import ArgumentError, SpecError, TopologyError
from statehal.portability import Grouping, Topology, holders, parts, rank_object, shard, writer
from statehal.spec import Spec

FULL = Attention("full", (0, 2, 4, 6), 8, 16, "bfloat16", shared=((7, 6),))
GDN = ConvRecurrent(
    "gdn",
    (1, 3, 5),
    8192,
    4,
    "bfloat16",
    sections=(2048, 2048, 4096),
    section_heads=(16, 16, 32),
    state=(32, 128, 128),
)
MLA = Latent("mla", (0, 1), 512, 64, "bfloat16", extra=(ExtraField("indexer", (132,), "uint8", (1,)),))
GATED = Attention("gated", (0, 1), 4, 16, "bfloat16", extra=(ExtraField("gate", (8, 3), "float16", (0,), heads=4),))


@pytest.mark.parametrize(
    ("specs", "topology", "rank", "expected"),
    [
        ((FULL,), Topology(tensor=2), 1, (replace(FULL, kv_heads=4),)),
        ((FULL,), Topology(tensor=16), 5, (replace(FULL, kv_heads=1),)),
        (
            (FULL, GDN),
            Topology(tensor=4),
            0,
            (
                replace(FULL, kv_heads=2),
                replace(GDN, channels=2048, sections=(512, 512, 1024), section_heads=(4, 4, 8), state=(8, 128, 128)),
            ),
        ),
        (
            (GDN,),
            Topology(tensor=32),
            0,
            (replace(GDN, channels=384, sections=(128, 128, 128), section_heads=(1, 1, 1), state=(1, 128, 128)),),
        ),
        ((FULL, GDN), Topology(pipeline=2), 0, (replace(FULL, layers=(0, 2), shared=()), replace(GDN, layers=(1, 3)))),
        ((FULL, GDN), Topology(pipeline=2), 1, (replace(FULL, layers=(4, 6)), replace(GDN, layers=(5,)))),
        ((FULL, GDN), Topology(pipeline=4, stage_layers=(0, 1, 1, 6)), 1, (replace(FULL, layers=(0,), shared=()),)),
        ((FULL, GDN), Topology(pipeline=4, stage_layers=(0, 1, 1, 6)), 0, ()),
        ((MLA,), Topology(tensor=2, pipeline=2), 0, (replace(MLA, layers=(0,), extra=()),)),
        (
            (MLA,),
            Topology(tensor=2, pipeline=2),
            3,
            (replace(MLA, layers=(1,), extra=(ExtraField("indexer", (132,), "uint8", (1,)),)),),
        ),
        (
            (GATED,),
            Topology(tensor=2, context=3),
            5,
            (replace(GATED, kv_heads=2, extra=(ExtraField("gate", (4, 3), "float16", (0,), heads=2),)),),
        ),
    ],
)
def test_what_a_rank_keeps(specs: tuple[Spec, ...], topology: Topology, rank: int, expected: tuple[Spec, ...]) -> None:
    assert shard(specs, topology, rank) == expected


def test_a_rank_counts_tensor_then_context_then_pipeline() -> None:
    topology = Topology(tensor=2, pipeline=2, context=3)
    assert topology.world_size == 12
    places = [topology.place(rank) for rank in range(12)]
    assert places[:7] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 2, 0), (1, 2, 0), (0, 0, 1)]
    assert len(set(places)) == 12


UNDECLARED = replace(GDN, section_heads=None)
TWO_STAGES = Topology(pipeline=2)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Topology(tensor=0), ArgumentError, "^tensor=0 of a topology: expected an integer of at least 1$"),
        (lambda: Topology(pipeline=True), ArgumentError, "^pipeline=True of a topology"),
        (
            lambda: Topology(pipeline=2, stage_layers=(3,)),
            ArgumentError,
            r"^stage_layers=\(3,\): expected 2 counts, one a stage$",
        ),
        (
            lambda: shard([FULL], Topology(pipeline=2, stage_layers=(3, 4)), 0),
            TopologyError,
            r"^stage_layers=\(3, 4\) are 7 layers: the specs name layer 7$",
        ),
        (
            lambda: shard([FULL], Topology(tensor=2), 2),
            ArgumentError,
            "^rank=2 of a topology of 2: expected 0 to 1$",
        ),
        (
            lambda: shard([FULL], Topology(tensor=3), 0),
            TopologyError,
            "^spec 'full': 8 heads of 'k' and 'v' do not divide over tensor=3$",
        ),
        (
            lambda: shard([UNDECLARED], Topology(tensor=2), 0),
            TopologyError,
            "^spec 'gdn' does not say how tensor=2 divides its conv channels",
        ),
        (
            lambda: shard([FULL], Topology(pipeline=2, stage_layers=(7, 1)), 0),
            TopologyError,
            "^spec 'full': layer 7 reads the rows of layer 6, which another pipeline stage has",
        ),
        (
            lambda: rank_object([FULL], "full", Grouping.of([FULL], head_groups=2), Topology(tensor=4), 0),
            TopologyError,
            "is cut by the heads of a rank of tensor=4$",
        ),
        (
            lambda: rank_object([FULL], "full", Grouping.of([FULL], layers=4), TWO_STAGES, 0),
            TopologyError,
            "^part layers0-4.heads0of8 of 'full' is cut by a pipeline stage of Topology",
        ),
        (
            lambda: Grouping.of([FULL], object_tokens=0),
            ArgumentError,
            "^object_tokens=0 of a grouping: expected an integer of at least 1$",
        ),
        (
            lambda: rank_object([FULL], "gdn", Grouping.of([FULL]), Topology(), 0),
            ArgumentError,
            r"^no spec 'gdn' among those of the model: \['full'\]$",
        ),
        (
            lambda: Grouping.of([Spec("novel", (0,))]),
            SpecError,
            "^spec 'novel' is a Spec, of which no canonical form is known$",
        ),
        (
            lambda: parts(GDN, Grouping.of([FULL])),
            ArgumentError,
            r"^no sub-pool 'gdn' in this grouping: it has \['full'\]$",
        ),
    ],
)
def test_what_is_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_replicas_take_turns_by_object() -> None:
    topology, specs = Topology(tensor=8, pipeline=2), [BY_NAME["full"].spec]
    grouping = Grouping.of(specs)
    second = [part for part in parts(specs[0], grouping) if part.id == "layers2-3.heads1of4"]
    assert [holders(part, specs, topology) for part in second] == [(10, 11)]
    assert [writer(second[0], number, specs, topology) for number in range(4)] == [10, 11, 10, 11]


def test_sizes_of_parts() -> None:
    grouping = Grouping.of([FULL, GDN], layers=3)
    assert [(one.name, one.layers, one.head_groups) for one in grouping.subpools] == [("full", 3, 8), ("gdn", 3, 16)]
    sizes = {part.id: part.nbytes for part in parts(FULL, grouping)}
    assert len(sizes) == 2 * 8
    assert sizes["layers0-3.heads7of8"] == 3 * 2 * 256 * 16 * 2
    assert sizes["layers3-4.heads0of8"] == 1 * 2 * 256 * 16 * 2
    points = parts(GDN, grouping)
    assert [part.id for part in points] == [f"layers0-3.heads{n}of16" for n in range(16)]
    assert {part.nbytes for part in points} == {3 * (3 * (128 + 128 + 256) * 2 + 2 * 128 * 128 * 4)}
