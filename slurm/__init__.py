"""SLURM: job scripts, cluster configuration, commands and their output, a local cluster."""
