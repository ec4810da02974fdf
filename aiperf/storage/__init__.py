"""Files below a run directory on storage that refuses for a while: patience, appends, logs."""
