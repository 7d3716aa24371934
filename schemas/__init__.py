"""JSON Schemas of what PARC reads and writes; `make schemas` renews them."""
