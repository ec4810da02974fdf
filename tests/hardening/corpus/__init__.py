"""Hostile input in rows, one for each kind of reader; generated, the same each time."""
