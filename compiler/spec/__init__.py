"""The edge: YAML with positions, strict pydantic models, the JSON Schema of the spec."""
