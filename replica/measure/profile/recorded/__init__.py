"""A recording of a profiler, taken apart by operation, phase, layer and purpose of memory."""
