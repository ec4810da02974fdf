"""The choice of the next training: architectures by network morphism, hyperparameters by TPE."""
