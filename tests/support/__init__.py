"""Shared by tests and benchmarks: hand-made runs, real hosts, processes, pages and images."""
