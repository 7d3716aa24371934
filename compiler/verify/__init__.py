"""Independent verification of emitted files: framework-neutral comparisons with the rank map.

The verifier of each backend (``backends/<name>/verify.py``) derives the groups and ranks that the
framework, engine or launcher builds from its files. It shares no code with the emitter.
"""
