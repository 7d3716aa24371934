"""The cluster as a tree, host lists, process groups by host, and readers of topology files."""
