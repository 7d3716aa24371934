"""Sweep: the estimates of one spec for a grid or a list of field values."""
