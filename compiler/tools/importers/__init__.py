"""``parc import``: files of other tools, read as fragments of a spec."""
