"""``parc import``: read files of other tools and print them as a fragment of a spec."""
