"""plan.json, parc.lock, readers of output directories, and JSON Schemas."""
