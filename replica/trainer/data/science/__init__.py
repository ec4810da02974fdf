"""Input pipelines of scientific data: HDF5 and NumPy, no framework."""
