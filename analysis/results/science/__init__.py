"""Results of scientific workloads."""
