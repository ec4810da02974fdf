"""Runs as others see them: users of the same node, and the kernel."""
