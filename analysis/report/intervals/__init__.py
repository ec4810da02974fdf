"""Beginnings of phases, and the phases between them, in columns: a run may have millions."""
