"""The operations of a network, counted in several ways: from files, from Keras models, by profilers (`aiperf ops`)."""
