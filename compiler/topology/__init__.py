"""The cluster as a tree, and readers of what schedulers call it."""
