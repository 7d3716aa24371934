"""The click commands, one per file."""
