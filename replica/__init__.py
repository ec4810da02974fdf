"""A replica at work: it grows an architecture on its CPUs and trains it on its accelerators."""
