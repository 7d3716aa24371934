"""Closed formulas, each citing its source."""
