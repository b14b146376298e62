"""Tile sizes go by families of targets; layouts whose elements lie apart are held to all limits but those of widths."""

import compile_faults as planted
import pytest
from compile_faults import ROWS

from statehal_triton_ops.compile import run
from statehal_triton_ops.compile.rows import rows
from statehal_triton_ops.compile.scenario import Scenario, tensor
from statehal_triton_ops.compile.targets import TARGETS, named
from statehal_triton_ops.launch import launch


def tuned(family: str) -> None:
    """As many warps as that family has."""
    warps = {"hip64": 2}.get(family, 4)
    launch(planted.sound, (4,), tensor(ROWS * 2048), tensor(ROWS, dtype="int32"), tensor(ROWS, 128), 128, 128,
           num_warps=warps, D=128, BLOCK=16)  # fmt: skip


def test_every_target_has_a_family_and_amds_go_by_their_waves() -> None:
    found = {name: target.family for name, target in TARGETS.items() if target.backend == "hip"}
    assert found == {name: f"hip{target.warp_size}" for name, target in TARGETS.items() if target.backend == "hip"}
    assert {"hip64", "hip32"} == set(found.values())


def test_equal_launches_of_two_families_are_one_row_and_others_two() -> None:
    (row,) = rows([planted.scenario(planted.sound)], ["hip64", "hip32"])
    assert row.families == ["hip64", "hip32"]
    made = rows([Scenario("tuned", tuned)], ["hip64", "hip32"])
    assert [(row.families, row.specialised.num_warps) for row in made] == [(["hip64"], 2), (["hip32"], 4)]


def test_a_row_is_compiled_for_the_targets_of_its_families() -> None:
    report = run([Scenario("tuned", tuned)], named(["gfx942", "gfx1201"]), jobs=1, discovered=())
    assert [(one.target, one.row.specialised.num_warps) for one in report.results] == [("gfx942", 2), ("gfx1201", 4)]


@pytest.mark.parametrize("scattered", [True, False])
def test_elements_that_lie_apart_are_not_judged_by_width(scattered: bool) -> None:
    narrow = planted.scenario(planted.sound, "narrow", stride=129)
    product = planted.scenario(planted.half_product, "product")
    scenarios = [Scenario(one.name, one.run, scattered=scattered) for one in (narrow, product)]
    report = run(scenarios, named(["gfx942"]), jobs=1, discovered=())
    faults = {(fault.scenario, fault.measure) for fault in report.faults}
    assert ("product", "half_products") in faults
    assert (("narrow", "bulk_width") in faults) is not scattered
    (entry,) = [one for one in report.summary()["worst"] if one["kernel"].endswith(".sound")]
    assert entry["bulk_width"] == (0 if scattered else 2)
    assert entry["registers"] > 0


def test_a_row_that_one_scenario_judges_is_judged() -> None:
    narrow = planted.scenario(planted.sound, "narrow", stride=129)
    (row,) = rows([Scenario("apart", narrow.run, scattered=True), narrow], ["cuda"])
    assert not row.scattered
