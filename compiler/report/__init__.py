"""Output documents, diffs, and tables for the terminal."""
