"""Messages between processes, one JSON object a line."""
