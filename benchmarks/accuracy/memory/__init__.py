"""Published readings of memory, and the errors of the memory estimate."""
