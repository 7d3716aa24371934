"""Readers of wide tables of training runs: one run per row, with recipes of frameworks."""
