"""Checks that cost a device sync, around the methods of any backend; in force where ``check`` was asked for."""

from statehal.binding.checks.conv import CheckedCausalConv1d
from statehal.binding.checks.kv import CheckedKVWriter

__all__ = ["CheckedCausalConv1d", "CheckedKVWriter"]
