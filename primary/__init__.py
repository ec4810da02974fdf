"""The dispatching side: starts the replicas, hands out jobs, keeps the clock, ends the run."""
