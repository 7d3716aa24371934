"""``parc lint``: launch files that PARC did not write, checked against the rules of a spec."""
