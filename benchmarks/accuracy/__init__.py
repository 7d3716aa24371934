"""How far predictions are from published measurements: ``python -m benchmarks.accuracy``."""
