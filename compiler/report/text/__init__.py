"""Plain-text tables and summaries for the terminal."""
