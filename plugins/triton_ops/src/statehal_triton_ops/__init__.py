"""Vendor-neutral Triton kernels for statehal; the README beside ``src`` has the map."""
