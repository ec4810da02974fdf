"""A replica: it searches architectures on its CPUs and trains them on its accelerators."""
