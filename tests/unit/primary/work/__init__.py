"""The primary of a run with many replicas."""
