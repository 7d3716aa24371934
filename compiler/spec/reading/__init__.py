"""Reader of YAML text: a plain tree, with the positions of all keys and values."""
