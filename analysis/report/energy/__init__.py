"""Use of the nodes, and energy: by their own sensors, and by meters outside of them."""
