"""The scientific workloads of a run: what their models took to reach their quality; rates."""
