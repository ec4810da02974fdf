"""ILSVRC2012's development kit."""
