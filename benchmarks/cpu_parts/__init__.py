"""The parts of ``benchmarks/cpu.py``."""
