"""Differences between two specs or two output directories."""
