"""YAML text to a plain tree, with the position of every key and value."""
