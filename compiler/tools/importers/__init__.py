"""``parc import``: files of other tools to fragments of a spec."""
