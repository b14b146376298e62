"""Device code: every ``@triton.jit`` function is in here, and nothing that runs on the host."""
