"""A folder for PYTHONPATH, whose `sitecustomize` makes one rank of a training slow."""
