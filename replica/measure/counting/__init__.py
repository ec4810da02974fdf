"""The operations of a network, counted in several ways (`aiperf ops`)."""
