"""What the checks of causal conv1d drive a backend with: pools, random steps, a host's recurrent kernels."""
