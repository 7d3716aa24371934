"""Readers of topology files of schedulers, clouds and drivers: one module per format."""
