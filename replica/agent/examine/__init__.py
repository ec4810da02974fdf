"""The examination of a node before a run: what a replica would find there, and a short probe."""
