"""Settings of the earlier implementation, translated (`aiperf config import`)."""
