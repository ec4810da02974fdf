"""Series of runs of growing size: rows, laws and figure."""
