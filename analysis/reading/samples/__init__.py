"""Files of telemetry samples."""
