"""The search and the tuner on made-up objectives, without training (`aiperf search`, `aiperf hpo`)."""
