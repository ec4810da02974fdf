"""The search space: the initial architecture, the morphisms, the hyperparameters."""
