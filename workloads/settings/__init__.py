"""Constants of the scientific tasks by size, each with its source; no framework is imported."""
