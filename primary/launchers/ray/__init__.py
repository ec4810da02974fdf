"""Replicas on the nodes of a Ray cluster.

The primary calls a driver process, which alone imports Ray: Ray may end the process that it is in,
and that must not be the primary. The driver calls an actor on each node, which has the node's CPUs
and GPUs and calls a host process next to it. The host process runs the replicas of the node, and
ends them when its actor is gone.
"""
