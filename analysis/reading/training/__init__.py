"""What the replicas trained, as columns: progress, completed epochs, and the work of all trials."""
