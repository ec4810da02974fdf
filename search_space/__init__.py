"""What may be searched: the initial architecture, the morphisms, the hyperparameters."""
