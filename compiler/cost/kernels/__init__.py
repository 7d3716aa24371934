"""Seconds of kernels and collectives on one GPU type, from shapes and fitted constants."""
