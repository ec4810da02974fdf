"""The process of a replica: it searches on the CPUs, and starts the ranks that train."""
