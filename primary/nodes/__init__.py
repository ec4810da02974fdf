"""The machines of a cluster: what they are, and the connections to them."""
