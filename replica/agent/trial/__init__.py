"""One job of a replica, from its plan to its last epoch."""
