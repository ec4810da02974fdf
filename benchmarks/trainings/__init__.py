"""Parts of `benchmarks.training`, each for a process of its own."""
