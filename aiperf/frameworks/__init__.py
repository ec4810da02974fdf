"""The frameworks that train: as settings name them and users install them."""
