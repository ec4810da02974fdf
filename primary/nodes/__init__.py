"""The machines of a cluster: their inventory, and the connections to them."""
