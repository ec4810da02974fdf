"""What a replica trains next: architectures by network morphism, hyperparameters by TPE."""
