"""Differences between two specs or two output folders."""
