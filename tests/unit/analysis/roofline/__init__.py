"""The roofline of a run."""
