"""The micro suite: single operators on the data of the scientific workloads."""
