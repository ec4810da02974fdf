"""Series of runs: what is begun, resumed and kept."""
