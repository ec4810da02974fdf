"""One training step, measured by operation, phase and memory (`aiperf profile`)."""
