"""Passes from a parsed spec to a complete problem: names, units and defaults resolved."""
