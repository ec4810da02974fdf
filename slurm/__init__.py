"""All that is about SLURM."""
