"""Exact counts of a model: parameters, FLOPs, key-value cache, recurrent state."""
