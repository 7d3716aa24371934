"""plan.json, parc.lock and the JSON Schemas of everything that PARC reads and writes."""
