"""Spec of a job: YAML reader with positions, strict pydantic models, JSON Schema."""
