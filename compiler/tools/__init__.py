"""Implementations of the commands that are not part of a compile, such as lint, import and sweep.

They contain no rules or flags of a framework; each backend declares its own linter and importers.
"""
