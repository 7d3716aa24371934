"""Readers of what schedulers, clouds and drivers say about a cluster: a format a file."""
