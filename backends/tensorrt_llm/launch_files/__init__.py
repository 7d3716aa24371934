"""Importers and linter of launch files with TensorRT-LLM."""
