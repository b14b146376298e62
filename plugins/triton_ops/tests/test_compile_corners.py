"""Kernels compile for sizes of one, which Triton makes constants, and for storage that a target has no type for."""

from statehal_triton_ops.compile import run
from statehal_triton_ops.compile.scenario import Scenario
from statehal_triton_ops.compile.scenarios import conv, kv, memory
from statehal_triton_ops.compile.scenarios.conv import Case
from statehal_triton_ops.compile.targets import named


def compiled(*scenarios: Scenario) -> None:
    report = run(scenarios, named(["sm80", "gfx1100"]), jobs=1, discovered=())
    assert report.results
    assert [str(fault) for fault in report.faults if fault.measure == "compiles"] == []


def test_one_channel_and_rows_of_one_word() -> None:
    case = Case(3, "bfloat16", channels=1, counter=True, replay=True, drafts=2)
    compiled(Scenario(case.name, conv._run(case, slice(0, 1)), False))


def test_fp8_where_the_target_has_no_such_type() -> None:
    rows = [one for one in memory.scenarios() if one.name.startswith("memory.rows float8_e4m3fn")]
    assert rows
    compiled(rows[0], Scenario("latent", kv._latent("float8_e4m3fnuz", slice(0, 1)), False))
