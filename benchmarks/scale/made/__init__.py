"""A run that was never trained: the records of hundreds of replicas, as honest ones leave them."""
