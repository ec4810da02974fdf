"""Workloads: the data, model, loss, quality measure and target of a training."""
