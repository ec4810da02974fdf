"""Generation of fields by a pair of networks that train against each other."""
