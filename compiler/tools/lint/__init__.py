"""``parc lint``: check launch files that PARC did not write against the same rules as a spec."""
