"""Starter spec of `parc init`: hardware from names and node lists, and a layout that is tried."""
