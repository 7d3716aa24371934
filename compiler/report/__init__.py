"""Tables and diffs for people."""
