"""The ahead-of-time gate: every kernel compiled for every target, without a device, and what comes out checked."""

from statehal_triton_ops.compile.discovery import Interpreted, kernels
from statehal_triton_ops.compile.gate import LIMITS, Fault, Limit
from statehal_triton_ops.compile.measure import Measures
from statehal_triton_ops.compile.report import Report, Result
from statehal_triton_ops.compile.run import run
from statehal_triton_ops.compile.scenario import Scenario
from statehal_triton_ops.compile.tables import markdown
from statehal_triton_ops.compile.targets import TARGETS, Target

__all__ = [
    "LIMITS",
    "TARGETS",
    "Fault",
    "Interpreted",
    "Limit",
    "Measures",
    "Report",
    "Result",
    "Scenario",
    "Target",
    "kernels",
    "markdown",
    "run",
]
