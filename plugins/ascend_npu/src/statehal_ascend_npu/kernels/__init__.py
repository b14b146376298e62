"""Device code, written for Triton 3.2 and later: no tuples, no barriers, and grids that do not grow with the work."""
