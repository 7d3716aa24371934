"""Exact counts of a model: parameters, FLOPs, bytes of key-value cache and recurrent state."""
