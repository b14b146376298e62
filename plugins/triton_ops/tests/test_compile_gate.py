"""The gate turns red at each planted fault, and names kernel, target, measure and limit."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import compile_faults as planted
import pytest

from statehal_triton_ops.compile import Report, run
from statehal_triton_ops.compile.gate import judge
from statehal_triton_ops.compile.targets import named

TARGETS = named(["sm90", "gfx942", "gfx1201"])

FAULTS = {
    "lost_hint": (planted.scenario(planted.sound, "lost_hint", stride=129), {"bulk_width", "narrow_share"}),
    "half_product": (planted.scenario(planted.half_product), {"half_products"}),
    "spill": (planted.scenario(planted.spill, num_warps=1), {"spills", "scratch_bytes"}),
    "id_product": (planted.scenario(planted.id_product), {"word_products"}),
    "program_product": (planted.scenario(planted.program_product), {"word_products"}),
    "small_program": (planted.scenario(planted.sound, "small_program", BLOCK=2), {"narrow_share"}),
    "not_compiling": (planted.scenario(planted.not_compiling), {"compiles"}),
}


@pytest.fixture(scope="module")
def report() -> Report:
    scenarios = [planted.scenario(planted.sound), *(scenario for scenario, _ in FAULTS.values())]
    return run(scenarios, TARGETS, jobs=1, discovered=["compile_faults.sound", "compile_faults.forgotten"])


def of(report: Report, scenario: str) -> Iterator[tuple[str, str, str]]:
    for fault in report.faults:
        if fault.scenario == scenario:
            yield fault.measure, fault.target, str(fault)


def test_a_sound_kernel_passes(report: Report) -> None:
    results = [result for result in report.results if result.row.scenarios == ["compile_faults.sound"]]
    assert len(results) == len(TARGETS)
    assert not list(of(report, "compile_faults.sound"))
    for result in results:
        measures = result.measures
        assert measures is not None
        assert (measures.spills, measures.scratch_bytes, measures.half_products, measures.word_products) == (0, 0, 0, 0)
        assert measures.bulk_width >= 8
        assert measures.address_bits == 64
        assert measures.registers > 0
        assert 0 < measures.occupancy <= 1
        assert set(measures.loads) & {8, 16}
        assert set(measures.stores) & {8, 16}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_turns_the_gate_red(report: Report, name: str) -> None:
    scenario, expected = FAULTS[name]
    found = list(of(report, scenario.name))
    assert expected <= {measure for measure, _, _ in found}
    assert {measure for measure, _, _ in found} <= expected | {"spills", "scratch_bytes"}
    targets = {target for _, target, _ in found}
    # gfx942 keeps what spills in its further 256 vector registers
    assert targets == {target.name for target in TARGETS} - ({"gfx942"} if name == "spill" else set())


@pytest.mark.parametrize(
    ("name", "target", "text"),
    [
        ("lost_hint", "sm90", "compile_faults.sound for sm90: bulk_width is 2 bytes an access, limit at least 8: "),
        ("half_product", "gfx942", "compile_faults.half_product for gfx942: half_products is "),
        ("spill", "sm90", "bytes of local memory a thread, limit at most 0: "),
        ("id_product", "gfx1201", "word_products is 1 32-bit products in addresses, limit at most 0: "),
        ("not_compiling", "sm90", "compile_faults.not_compiling for sm90: compiles is false, limit true: "),
    ],
)
def test_the_text_names_what_where_and_by_how_much(report: Report, name: str, target: str, text: str) -> None:
    scenario, _ = FAULTS[name]
    lines = [line for _, one, line in of(report, scenario.name) if one == target]
    assert any(text in line and line.endswith(f"[{scenario.name}]") for line in lines), lines


def test_places_are_named(report: Report) -> None:
    lines = [line for _, _, line in chain(of(report, "lost_hint"), of(report, FAULTS["id_product"][0].name))]
    assert all("compile_faults.py:" in line for line in lines)


def test_a_kernel_without_a_row_is_a_fault(report: Report) -> None:
    text = (
        "compile_faults.forgotten: row is missing, limit at least 1: no scenario launches this kernel, so that nothing "
        "is known of it (fix: add one to compile/scenarios/)"
    )
    assert [str(fault) for fault in report.faults if fault.measure == "row"] == [text]
    assert not report.passed


def test_nothing_compiled_is_no_pass() -> None:
    assert not run([], TARGETS, jobs=1, discovered=[]).passed


def test_short_addresses_are_a_fault(report: Report) -> None:
    measures = next(result.measures for result in report.results if result.measures is not None)
    assert [fault.measure for fault in judge(measures, "k", "t", "s")] == []
    narrow = replace(measures, address_bits=32)
    assert [fault.measure for fault in judge(narrow, "k", "t", "s")] == ["address_bits"]
