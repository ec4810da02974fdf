"""The primary of a run: starts the replicas, hands out jobs, keeps time, ends the run."""
