"""Implementations of ``parc lint``, ``parc import`` and ``parc calibrate``.

They contain no framework's rules or flags; each backend declares its own linter and importers.
"""
