"""Causal conv1d over the windows of a sub-pool: which tensors, which sequences, which computation."""
