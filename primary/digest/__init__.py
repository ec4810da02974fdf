"""The digest that the primary publishes while a run works (`aiperf.records.digest`)."""
