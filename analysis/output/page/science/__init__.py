"""The charts of scientific workloads."""
