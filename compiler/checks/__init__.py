"""Warnings and advice about a finished plan."""
