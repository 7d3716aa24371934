"""The layout search: enumerate candidates, drop invalid and oversized ones, rank the survivors."""
