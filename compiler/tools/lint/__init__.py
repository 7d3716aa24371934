"""``parc lint``: apply the rules of a spec to launch files that PARC did not write."""
