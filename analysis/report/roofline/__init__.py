"""The roofline of a run: its nodes' ceilings by the micro suite, and the share that it reached."""
