"""Outlines, the part of every architecture of a run that the search keeps."""
