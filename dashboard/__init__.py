"""The live dashboard: the report page of runs in a browser, read from their directories alone."""
