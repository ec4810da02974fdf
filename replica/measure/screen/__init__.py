"""The measures of a screening on one device: a process for each device, all at once."""
