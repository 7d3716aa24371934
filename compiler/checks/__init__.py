"""Warnings and advice about a finished plan: memory, placement, idle GPUs and expert dispatch."""
