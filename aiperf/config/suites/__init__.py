"""Sections of a configuration about what is measured next to AutoML, or in its place."""
