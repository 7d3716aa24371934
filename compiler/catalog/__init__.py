"""Catalog of hardware and models: one YAML file per entry, with the source of each number."""
