"""Sections of a configuration about what is trained and measured."""
