"""What is installed, what is wrong with it and how to repair it, and which backend each device would get."""

from statehal.doctor.diagnosis import report
from statehal.doctor.report import BackendReport, DeviceReport, Problem, Report

__all__ = ["BackendReport", "DeviceReport", "Problem", "Report", "report"]
