"""The search and the tuner on synthetic objectives, without training (`aiperf search`, `aiperf hpo`)."""
