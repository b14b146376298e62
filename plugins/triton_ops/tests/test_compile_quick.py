"""The gate itself: the quick subset of the kernels that are shipped."""

from statehal_triton_ops.cli import joined
from statehal_triton_ops.compile import run


def test_the_quick_subset_passes() -> None:
    report = run(quick=True, jobs=2)
    assert report.passed, "\n".join(joined(report.faults))
    assert {result.target for result in report.results} == set(report.targets)
    assert {result.row.kernel for result in report.results} == set(report.kernels)
